// Package wire knows what travels between the coordinator and everything it
// talks to: raw JSON bodies, the shapes of the inbound protocols and of their
// legs, header rules, server-sent events, and the errors a client sees.
//
// It opens no connection and starts no goroutine. JSON is edited and never
// re-encoded: what the coordinator does not set leaves as it came, byte for
// byte, because the order of a tool schema's keys or the spelling of a number
// changes the prompt that the model reads.
package wire
