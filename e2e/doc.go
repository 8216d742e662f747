// Package e2e has tests only: coordinators as processes of their own behind the
// real gateways of deploy/haproxy and deploy/nginx, with the simulated cluster's
// workers behind both.
//
//	client ─▶ gateway ─▶ coordinator (of two) ─▶ the same gateway ─▶ worker (of two of its role)
//
// The gateways run with the very files that are shipped; only addresses are put
// in. A gateway that is not installed is left out, and the test says so.
package e2e
