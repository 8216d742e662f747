module github.com/llm-coordinator/coordinator/loadtest/k6/enginetest

go 1.26.8

require (
	github.com/grafana/sobek v0.0.0-20260429085637-a66d4790012b
	go.uber.org/goleak v1.3.0
)

require (
	github.com/dlclark/regexp2 v1.12.0 // indirect
	github.com/go-sourcemap/sourcemap v2.1.4+incompatible // indirect
	github.com/google/pprof v0.0.0-20230207041349-798e818bf904 // indirect
	golang.org/x/text v0.3.8 // indirect
)
