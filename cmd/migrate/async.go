package migrate

// asyncKeys are the parameters of the step async-broker.
var asyncKeys = []key{
	{name: "redis_url", kind: address, note: notes("a user and a password, if there are any, are left out: put the whole URL into a variable or a file, and env:NAME or file:PATH here")},
	{name: "mode_header", kind: text},
	{name: "tenant_header", kind: text},
	{name: "timeout_header", kind: text},
	{name: "routes", kind: records, of: []key{{name: "model", kind: text}, {name: "tenant", kind: text}, {name: "queue", kind: text}, {name: "tier", kind: text}}},
	{name: "default_queue", kind: text},
	{name: "default_tier", kind: text},
	{name: "objectives", kind: named, of: []key{{kind: record, of: []key{{name: "reserved", kind: text}, {name: "overflow", kind: text}}}}},
	{name: "objective_header", kind: text},
	{name: "fairness_header", kind: text},
	{name: "quota", kind: record, of: []key{
		{name: "prefix", kind: text},
		{name: "attribute", kind: text},
		{name: "limits", kind: named, of: []key{{kind: integer}}},
		{name: "window_seconds", kind: integer},
	}},
	{name: "timeouts", kind: record, of: []key{asyncTimeouts("enqueue"), asyncTimeouts("wait")}},
	{name: "wait_cap_seconds", kind: integer},
	{name: "fetch_grace_seconds", kind: integer},
	{name: "wakeup_mode", kind: text},
	{name: "forward_headers", kind: texts},
}

func asyncTimeouts(mode string) key {
	return key{name: mode, kind: record, of: []key{{name: "default_seconds", kind: integer}, {name: "max_seconds", kind: integer}}}
}
