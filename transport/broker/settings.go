package broker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// The ways of being told that a result has come.
const (
	// Auto is Notify if Redis sends keyspace notifications for lists, else Poll.
	Auto = "auto"
	// Notify subscribes to each mailbox that is waited for, and polls them
	// slowly all the same.
	Notify = "notify"
	// Poll looks into all mailboxes that are waited for, again and again.
	Poll = "poll"
)

// Settings of a broker's Redis.
type Settings struct {
	// URL is redis://, rediss:// or unix://, with a user, a password and a
	// database if there are any. Of its query, what concerns connections counts;
	// time-outs and repetitions are the broker's own.
	URL string
	// Renewed, if set, returns the URL as it is now. New connections use its user
	// and its password, if it leads to where URL does; nothing else of it counts.
	Renewed func() string
	// Wakeup is Auto, Notify or Poll; empty is Auto.
	Wakeup string
	// FetchGrace is how long a result stays after it was fetched; 0: it is
	// deleted.
	FetchGrace time.Duration

	// QuotaPrefix, QuotaAttribute and a tenant make the name of its counter.
	// A tenant without a limit, or with one of 0, has none.
	QuotaPrefix, QuotaAttribute string
	QuotaLimits                 map[string]int64
	// QuotaWindow is how long a counter outlives its last change.
	QuotaWindow time.Duration

	// PollInterval is between two looks at all mailboxes, BackupInterval the
	// same while notifications arrive. 0 is 200 ms, and 2 s.
	PollInterval, BackupInterval time.Duration
	// Timeout limits each command; 0 is 2 s.
	Timeout time.Duration
}

const (
	defaultPollInterval   = 200 * time.Millisecond
	defaultBackupInterval = 2 * time.Second
	defaultTimeout        = 2 * time.Second

	// connections is the size of the pool unless the URL names one. Commands are
	// short: so many waited for at once keep a Redis busy.
	connections = 16
)

// errURL says nothing of what was in the URL: what a parser complains about
// could be a part of the password.
var errURL = errors.New("the URL of Redis cannot be read: it is redis://[user:password@]host[:port][/database], or rediss:// or unix://; special characters in a password are written as %XX")

// complete checks the settings and fills in what is left to the broker.
func (s *Settings) complete() error {
	switch s.Wakeup {
	case "":
		s.Wakeup = Auto
	case Auto, Notify, Poll:
	default:
		return fmt.Errorf("wakeup mode %q: it is %s, %s or %s", s.Wakeup, Auto, Notify, Poll)
	}
	for name, d := range map[string]time.Duration{"fetch grace": s.FetchGrace, "quota window": s.QuotaWindow,
		"poll interval": s.PollInterval, "backup interval": s.BackupInterval, "timeout": s.Timeout} {
		if d < 0 {
			return fmt.Errorf("the %s is negative", name)
		}
	}
	for tenant, limit := range s.QuotaLimits {
		if limit < 0 {
			return fmt.Errorf("the quota of tenant %q is negative", tenant)
		}
		if limit > 0 && s.QuotaWindow == 0 {
			return fmt.Errorf("tenant %q has a quota, but there is no quota window", tenant)
		}
	}
	fill(&s.PollInterval, defaultPollInterval)
	fill(&s.BackupInterval, defaultBackupInterval)
	fill(&s.Timeout, defaultTimeout)
	return nil
}

func fill(d *time.Duration, with time.Duration) {
	if *d == 0 {
		*d = with
	}
}

// options are what the URL says, and how this package wants its connections.
func (s *Settings) options() (*redis.Options, error) {
	o, err := redis.ParseURL(s.URL)
	if err != nil || o.DB < 0 {
		return nil, errURL
	}
	if s.Renewed != nil {
		o.CredentialsProviderContext = s.credentials(o.Addr, o.Username, o.Password, o.TLSConfig != nil)
	}
	o.Dialer = dialer(o.TLSConfig, s.Timeout)
	o.Protocol = 2 // nothing here needs more, and it has no messages in between
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = s.Timeout, s.Timeout, s.Timeout, s.Timeout
	o.ContextTimeoutEnabled = true
	o.MaxRetries = -1 // what may be sent twice is known here, not there
	o.DialerRetries = 1
	o.PipelinePoolSize = -1
	if o.PoolSize <= 0 {
		o.PoolSize = connections
	}
	return o, nil
}

// credentials has each new connection ask for the user and the password of the
// renewed URL. One that cannot be read, or leads elsewhere, is passed over: what
// is another Redis' is not told to this one.
func (s *Settings) credentials(addr, user, password string, secure bool) func(context.Context) (string, string, error) {
	return func(context.Context) (string, string, error) {
		o, err := redis.ParseURL(s.Renewed())
		if err != nil || o.Addr != addr || (o.TLSConfig != nil) != secure {
			return user, password, nil
		}
		return o.Username, o.Password, nil
	}
}

// address is for people: where Redis is, without credentials.
func address(o *redis.Options) string {
	return strings.TrimSuffix(o.Addr, "/") + "/" + strconv.Itoa(o.DB)
}

// listNotifications reports whether Redis, set so, tells of elements that are
// pushed to lists.
func listNotifications(flags string) bool {
	return strings.Contains(flags, "K") && strings.ContainsAny(flags, "lA")
}
