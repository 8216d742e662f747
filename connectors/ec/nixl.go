package ec

import "github.com/llm-coordinator/coordinator/transport/wire"

func init() { Register("ec-nixl", func() (Connector, error) { return nixl{}, nil }) }

// nixl is vLLM's ECCPUConnector over NIXL: prefill pulls each embedding from
// the encode worker that its descriptor names.
type nixl struct{}

func (nixl) Name() string                       { return "ec-nixl" }
func (nixl) Prefill(merged wire.Text) wire.Text { return merged }

func (nixl) Described() bool { return true }

// HostField is what VLLM_EC_SIDE_CHANNEL_HOST says, localhost by default.
func (nixl) HostField() string { return "peer_host" }
