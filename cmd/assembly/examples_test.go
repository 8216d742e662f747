package assembly_test

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"context"

	"github.com/llm-coordinator/coordinator/cmd/assembly"
	"github.com/llm-coordinator/coordinator/conf"
	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// TestExamples: each of conf/examples is a configuration that serves, with
// nothing changed but where things are.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../conf/examples/*.toml")
	if err != nil || len(files) != 6 {
		t.Fatalf("%v %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			o := cluster.Options{KV: cluster.KVSharedStorage, WorkerHeader: "x-worker"}
			for _, kv := range []string{cluster.KVNixl, cluster.KVSGLang} {
				if strings.Contains(string(text), kv) {
					o.KV = kv
				}
			}
			workers := cluster.New(o)
			if err := workers.Start("127.0.0.1:0"); err != nil {
				t.Fatal(err)
			}
			defer workers.Close()
			cfg, err := conf.Load(file, []string{"COORDINATOR_GATEWAY_ADDRESS=" + workers.URL(), "COORDINATOR_STEPS_RENDER_ADDRESS=" + workers.URL(),
				"COORDINATOR_STEPS_REPLACE_MEDIA_URLS_ALLOWED_NETWORKS=127.0.0.0/8"})
			if err != nil {
				t.Fatal(err)
			}
			c, err := assembly.New(cfg, assembly.Options{})
			if err != nil {
				t.Fatal(err)
			}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(context.Background())
			ended := make(chan outcome, 1)
			go func() {
				cut, err := c.Run(ctx, l, nil)
				ended <- outcome{cut, err}
			}()
			r := &rig{t: t, cluster: workers, Coordinator: c, base: "http://" + l.Addr().String(),
				client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
			image := picture(7, 500)
			body := `{"model":"demo-model","messages":[{"role":"user","content":[{"type":"text","text":"one two"},{"type":"image_url","image_url":{"url":"` + dataURI(image) + `"}}]}]}`
			got := r.post(chatPath, body)
			if want := cluster.ReplyWithImages("one two", cluster.ImageHash(image)); got.status != 200 || said(t, got.body, false) != want {
				t.Errorf("got %d %s", got.status, got.body)
			}
			stop()
			if o := <-ended; o.cut != 0 || o.err != nil {
				t.Errorf("%+v", o)
			}
			if st := workers.State(); st.ViolationCount != 0 || st.HeldKV != 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}
