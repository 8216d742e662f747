package conf

// ServerTLS are the files of a listener that speaks TLS. They are read again when they change.
type ServerTLS struct {
	// CertFile and KeyFile are the listener's certificate, with those between it and its CA, and its key; both in PEM,
	// both or none.
	CertFile string `toml:"cert_file"`
	KeyFile  string `toml:"key_file"`
	// ClientCAFile has the CAs of clients, in PEM. If set, clients must have a certificate of one of them.
	ClientCAFile string `toml:"client_ca_file"`
	// MinVersion is "1.2" or "1.3".
	MinVersion string `toml:"min_version"`
}

// ClientTLS are the files with which an https address is called. They are read again when they change.
type ClientTLS struct {
	// CAFile has the CAs that the server's certificate may be of, in PEM; "" means those of the system.
	CAFile string `toml:"ca_file"`
	// CertFile and KeyFile are shown to a server that asks for a certificate; both in PEM, both or none.
	CertFile string `toml:"cert_file"`
	KeyFile  string `toml:"key_file"`
	// ServerName is what the server's certificate must be for; "" means the host of the address.
	ServerName string `toml:"server_name"`
}

func (v validator) serverTLS(s ServerTLS) {
	if s.MinVersion != "1.2" && s.MinVersion != "1.3" {
		v.fail("server.tls.min_version", `must be "1.2" or "1.3", got %q`, s.MinVersion)
	} else if s.MinVersion == "1.3" && s.CertFile == "" && s.KeyFile == "" {
		v.fail("server.tls.min_version", "needs cert_file and key_file: without them there is no TLS")
	}
}
