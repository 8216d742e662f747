package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/llm-coordinator/coordinator/transport/monitor"
)

// mostOpen is how many pages may be fed at a time.
const mostOpen = 32

// every is how often a page is fed, patience how long it may take nothing.
const (
	every    = time.Second
	patience = 10 * time.Second
)

// openPage counts a page that is fed, unless that is too many or the server is
// closed. Who has it calls closePage.
func (s *Server) openPage() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.closed:
		return false
	default:
	}
	if s.open >= mostOpen {
		return false
	}
	s.open++
	s.feeding.Add(1)
	return true
}

func (s *Server) closePage() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	s.feeding.Done()
}

// events feeds a page: all there is at first, then what has changed.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	if !s.openPage() {
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	defer s.closePage()
	w.Header().Set("Content-Type", "text/event-stream")
	f := feed{w, http.NewResponseController(w)}
	update, mark := s.settings.Monitor.Updates(0)
	if f.send("snapshot", struct {
		Status   monitor.Status `json:"status"`
		Requests []monitor.View `json:"requests"`
	}{s.settings.Status(), append(update.Running, update.Finished...)}) != nil {
		return
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		case <-s.closed:
			return
		}
		update, mark = s.settings.Monitor.Updates(mark)
		if f.send("update", struct {
			Status monitor.Status `json:"status"`
			monitor.Update
		}{s.settings.Status(), update}) != nil {
			return
		}
	}
}

// feed is a stream of server-sent events.
type feed struct {
	w  http.ResponseWriter
	rc *http.ResponseController
}

func (f feed) send(name string, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("write an event: %w", err)
	}
	f.rc.SetWriteDeadline(time.Now().Add(patience))
	if _, err := fmt.Fprintf(f.w, "event: %s\ndata: %s\n\n", name, text); err != nil {
		return err
	}
	return f.rc.Flush()
}
