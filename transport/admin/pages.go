package admin

import (
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/julienschmidt/httprouter"

	"github.com/llm-coordinator/coordinator/transport/monitor"
)

//go:embed page
var files embed.FS

var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"ms":     duration,
	"bytes":  size,
	"clock":  func(t time.Time) string { return t.Format(time.TimeOnly) },
	"num":    func(f float64) string { return strconv.FormatFloat(f, 'f', 1, 64) },
	"rate":   func(f float64) string { return strconv.FormatFloat(f, 'f', 2, 64) },
	"tokens": tokens,
	"x":      place,
	"w": func(v monitor.View, b monitor.Bar) string {
		from, until := position(v, b.From), position(v, b.Until)
		return strconv.FormatFloat(max(2, until-from), 'f', 1, 64)
	},
}).ParseFS(files, "page/*.html"))

// duration writes milliseconds for people.
func duration(ms float64) string {
	if ms >= 1000 {
		return fmt.Sprintf("%.2f s", ms/1000)
	}
	return fmt.Sprintf("%.1f ms", ms)
}

// tokens writes how many tokens went in and came out, as far as that is known.
func tokens(v monitor.View) string {
	if v.TokensIn == 0 && v.TokensOut == 0 {
		return "–"
	}
	count := func(n int) string {
		if n == 0 {
			return "–"
		}
		return strconv.Itoa(n)
	}
	return count(v.TokensIn) + ", " + count(v.TokensOut)
}

// size writes bytes for people.
func size(n int64) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}

// position is where a moment stands on a timeline of 1000.
func position(v monitor.View, ms float64) float64 {
	if v.Total <= 0 {
		return 0
	}
	return min(1000, 1000*ms/v.Total)
}

func place(v monitor.View, ms float64) string {
	return strconv.FormatFloat(position(v, ms), 'f', 1, 64)
}

// mostShown is how many requests a page shows.
const mostShown = 700

func filterOf(r *http.Request) monitor.Filter {
	q := r.URL.Query()
	return monitor.Filter{ID: q.Get("id"), Model: q.Get("model"), Path: q.Get("path"), Outcome: q.Get("outcome")}
}

// requests lists requests. Without a limit it lists all that are shown.
func (s *Server) requests(w http.ResponseWriter, r *http.Request) {
	most := mostShown
	if text := r.URL.Query().Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			http.Error(w, "limit: want a number from 1", http.StatusBadRequest)
			return
		}
		most = min(n, mostShown)
	}
	s.writeJSON(w, http.StatusOK, struct {
		Requests []monitor.View `json:"requests"`
	}{s.settings.Monitor.Requests(filterOf(r), most)})
}

func (s *Server) page(w http.ResponseWriter, r *http.Request) {
	filter := filterOf(r)
	s.render(w, "page.html", struct {
		Status   monitor.Status
		Requests []monitor.View
		Filter   monitor.Filter
	}{s.settings.Status(), s.settings.Monitor.Requests(filter, mostShown), filter})
}

// request shows one request, as a page or as JSON.
func (s *Server) request(w http.ResponseWriter, r *http.Request) {
	serial := httprouter.ParamsFromContext(r.Context()).ByName("serial")
	v, ok := s.settings.Monitor.Request(serial)
	switch {
	case !ok:
		http.Error(w, "no such request: it never was, or more have ended since than are kept", http.StatusNotFound)
	case strings.Contains(r.Header.Get("Accept"), "text/html"):
		s.render(w, "request.html", struct{ Request monitor.View }{v})
	default:
		s.writeJSON(w, http.StatusOK, v)
	}
}

func (s *Server) render(w http.ResponseWriter, name string, data any) {
	var text strings.Builder
	if err := pages.ExecuteTemplate(&text, name, data); err != nil {
		s.log.Warn("a page could not be written", "page", name, "error", err)
		http.Error(w, "the page could not be written", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Write([]byte(text.String()))
}

// asset serves one of the page's files.
func asset(name, kind string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		text, err := files.ReadFile("page/" + name)
		if err != nil {
			http.Error(w, "no such file", http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", kind+"; charset=utf-8")
		w.Write(text)
	}
}
