package assembly_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// redisClient is a test's own.
func redisClient(t testing.TB, addr string) *redis.Client { return redisDatabase(t, addr, 0) }

func redisDatabase(t testing.TB, addr string, db int) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, DB: db, DisableIdentity: true, MaxRetries: -1, // a result is put into its mailbox once
		DialTimeout: time.Minute, ReadTimeout: time.Minute, WriteTimeout: time.Minute, PoolTimeout: time.Minute,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
	t.Cleanup(func() { c.Close() })
	return c
}

func z(score float64, member string) redis.Z { return redis.Z{Score: score, Member: member} }
