package media

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// secret is what the URLs and answers of these tests hold where nobody may see
// it.
const secret = "the-patient-has-gout"

// png is the smallest thing that is taken for a PNG.
const png = "\x89PNG\r\n\x1a\n"

// pngURI is what becomes of png.
const pngURI = `"data:image/png;base64,iVBORw0KGgo="`

// allowed is the default, with this size for all.
func allowed(size int64) (all [wire.Modalities]Allowed) {
	for m := range all {
		all[m] = Allowed{Modality: wire.Modality(m), MaxSize: size, Types: known[m]}
	}
	return all
}

// checkImage is CheckDataURI of images.
func checkImage(value []byte, maxSize int64) error {
	a := Allowed{MaxSize: maxSize, Types: known[wire.Image]}
	return a.CheckDataURI(value)
}

// world is all that a fetcher can reach: names and listeners, no network.
type world struct {
	// names are looked up here; the next look-up of a name gets the next
	// answer, the last answer stays.
	names map[string][]answer
	// listen has what is behind an address and port; nothing refuses.
	listen map[string]*cluster.PipeListener
	// blackholes are addresses that answer no dial.
	blackholes []string

	mu       sync.Mutex
	lookedUp []string
	dialed   []string
	open     int // connections that the fetcher has not closed
}

// dialed is the fetcher's end of a connection.
type dialed struct {
	net.Conn
	closed func()
}

func (c *dialed) Close() error {
	c.closed()
	return c.Conn.Close()
}

// connections returns how many are open.
func (w *world) connections() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open
}

type answer struct {
	addrs []string
	err   error
}

func at(addrs ...string) []answer { return []answer{{addrs: addrs}} }

// errSilent is a name server that does not answer.
var errSilent = errors.New("silent")

func (w *world) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lookedUp = append(w.lookedUp, host)
	answers := w.names[host]
	if len(answers) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	if len(answers) > 1 {
		w.names[host] = answers[1:]
	}
	if answers[0].err == errSilent {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	var addrs []netip.Addr
	for _, a := range answers[0].addrs {
		addrs = append(addrs, netip.MustParseAddr(a))
	}
	return addrs, answers[0].err
}

var errRefused = errors.New("connection refused")

func (w *world) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	w.dialed = append(w.dialed, address)
	w.mu.Unlock()
	if slices.Contains(w.blackholes, address) {
		<-ctx.Done()
		return nil, &net.OpError{Op: "dial", Net: network, Err: ctx.Err()}
	}
	if l := w.listen[address]; l != nil {
		c, err := l.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.open++
		return &dialed{c, sync.OnceFunc(func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.open--
		})}, nil
	}
	return nil, &net.OpError{Op: "dial", Net: network, Err: errRefused}
}

// fetcher makes a fetcher in a world.
func (w *world) fetcher(t testing.TB, edit ...func(*Settings)) *Fetcher {
	t.Helper()
	s := Settings{Timeout: 10 * time.Second, Allowed: allowed(1 << 20), Resolve: w.resolve, Dial: w.dial}
	for _, f := range edit {
		f(&s)
	}
	f, err := NewFetcher(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

// hosting makes a world with one origin, http://img.test.
func hosting(l *cluster.PipeListener) *world {
	return &world{
		names:  map[string][]answer{"img.test": at("93.184.216.34")},
		listen: map[string]*cluster.PipeListener{"93.184.216.34:80": l, "93.184.216.34:443": l},
	}
}

// serve starts an origin that is a handler.
func serve(t *testing.T, h http.HandlerFunc) *cluster.PipeListener {
	l := cluster.NewPipeListener()
	s := &http.Server{Handler: h, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	var running sync.WaitGroup
	running.Go(func() { s.Serve(l) })
	t.Cleanup(func() {
		s.Close()
		running.Wait()
	})
	return l
}

// raw starts an origin that is a function of each connection: it knows no HTTP.
func raw(t *testing.T, serve func(c *conn)) *cluster.PipeListener {
	l := cluster.NewPipeListener()
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer c.Close()
				serve(&conn{Conn: c})
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		running.Wait()
	})
	return l
}

// conn is a connection that counts what the other side has taken of it.
type conn struct {
	net.Conn
	said int
}

// hear reads a request's head and returns its lines, the headers sorted.
func (c *conn) hear() (lines []string) {
	var head []byte
	for !strings.HasSuffix(string(head), "\r\n\r\n") {
		var one [1]byte
		if _, err := c.Read(one[:]); err != nil {
			return nil
		}
		head = append(head, one[0])
	}
	lines = strings.Split(strings.TrimSuffix(string(head), "\r\n\r\n"), "\r\n")
	slices.Sort(lines[1:])
	return lines
}

func (c *conn) say(text string) bool {
	n, err := c.Write([]byte(text))
	c.said += n
	return err == nil
}

// says is an origin that answers everything with these bytes and hangs up.
func says(t *testing.T, text string) *cluster.PipeListener {
	return raw(t, func(c *conn) {
		c.hear()
		c.say(text)
	})
}

// wantFault fails the test unless err is a fault of this kind and code that
// tells no secret.
func wantFault(t *testing.T, err error, kind wire.Kind, code string) {
	t.Helper()
	f := (*wire.Fault)(nil)
	if !errors.As(err, &f) {
		t.Fatalf("error is %v, want a fault: %v, %s", err, kind, code)
	}
	if f.Kind != kind || f.ErrorCode() != code || f.Status != 0 {
		t.Errorf("fault is %v, %s (%v), want %v, %s", f.Kind, f.ErrorCode(), f, kind, code)
	}
	if strings.Contains(err.Error(), secret) {
		t.Errorf("%v tells the secret", err)
	}
}
