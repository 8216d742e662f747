package cluster

import "net/http"

// ifAvailable is the Prefer header of a probe.
const ifAvailable = "if-available"

// notAvailable is what a probe is told whose prompt is not cached.
var notAvailable = refusal{http.StatusPreconditionFailed, "PreconditionFailed", "The prompt is not cached.", ""}

// promptCache has the prompts that decode has cached. Guarded by Cluster.mu.
type promptCache struct {
	all     bool
	prompts bounded[promptKey]
}

// CachePrompt makes the decode worker have a prompt cached, so that a probe for it
// succeeds. The prompt is that of a client's request: its path and its body, with
// images as data URIs if the pipeline has a step that inlines them. It returns an
// error if no worker could read it.
func (c *Cluster) CachePrompt(path, body string) error {
	o, _, err := parseObject(withStandIns([]byte(body)))
	if err != nil {
		return err
	}
	a := apiAt(path)
	if a == nil {
		return refusalOf(http.StatusNotFound)
	}
	p, err := a.prompt(c.vocabulary, o)
	if err != nil {
		return err
	}
	c.cachePrompt(p)
	return nil
}

// MarkCached makes the decode worker have all prompts cached; with all false it
// empties the cache.
func (c *Cluster) MarkCached(all bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cache = promptCache{all: all, prompts: newBounded[promptKey](c.options.MaxRecorded)}
	c.notify()
}

func (c *Cluster) cachePrompt(p *prompt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cache.prompts.add(p.key)
	c.notify()
}

// countProbe counts a probe and reports whether the prompt is cached.
func (c *Cluster) countProbe(p *prompt) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.notify()
	if c.cache.all || c.cache.prompts.members[p.key] {
		c.state.ProbeHits++
		return true
	}
	c.state.ProbeMisses++
	return false
}
