package broker

// Check returns what is wrong with settings, without connecting to anything, or
// where Redis is, for people.
func Check(s Settings) (at string, err error) {
	if err := s.complete(); err != nil {
		return "", err
	}
	o, err := s.options()
	if err != nil {
		return "", err
	}
	return address(o), nil
}
