package httpapi

import (
	"context"
	"sync"
	"time"

	"pictor/internal/apikey"
	"pictor/internal/postgres"
)

// maxCachedKeys bounds the cache's memory: about 100 bytes each.
const maxCachedKeys = 50_000

// keyCache remembers which account a key belongs to, so that not every request
// looks it up. It holds accounts that exist only, never a refusal, and each no
// longer than its age: a revoked key that no broadcast told us about is refused
// after that.
type keyCache struct {
	age    time.Duration
	lookUp func(context.Context, apikey.Hash) (postgres.Account, error)

	mu        sync.Mutex
	entries   map[apikey.Hash]cachedKey
	forgotten int // calls of forget: a look-up that overlaps one is not remembered
}

type cachedKey struct {
	account int64
	until   time.Time
}

func newKeyCache(age time.Duration, lookUp func(context.Context, apikey.Hash) (postgres.Account, error)) *keyCache {
	return &keyCache{age: age, lookUp: lookUp, entries: make(map[apikey.Hash]cachedKey)}
}

// account returns the id of the account behind the key.
func (c *keyCache) account(ctx context.Context, h apikey.Hash) (int64, error) {
	c.mu.Lock()
	entry, ok := c.entries[h]
	before := c.forgotten
	c.mu.Unlock()
	if ok && time.Now().Before(entry.until) {
		return entry.account, nil
	}
	asked := time.Now()
	found, err := c.lookUp(ctx, h)
	if err != nil {
		return 0, err
	}
	if found.Deleted {
		return 0, accountGone()
	}
	c.remember(h, cachedKey{found.ID, asked.Add(c.age)}, before)
	return found.ID, nil
}

func (c *keyCache) remember(h apikey.Hash, k cachedKey, before int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.forgotten != before {
		return
	}
	if len(c.entries) >= maxCachedKeys {
		c.makeRoom()
	}
	c.entries[h] = k
}

// makeRoom drops what has aged, and anything else when that is not enough:
// losing an entry costs one look-up.
func (c *keyCache) makeRoom() {
	now := time.Now()
	for h, k := range c.entries {
		if now.After(k.until) {
			delete(c.entries, h)
		}
	}
	for h := range c.entries {
		if len(c.entries) < maxCachedKeys*9/10 {
			return
		}
		delete(c.entries, h)
	}
}

func (c *keyCache) forget(h apikey.Hash) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgotten++
	delete(c.entries, h)
}

func (c *keyCache) forgetAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgotten++
	clear(c.entries)
}
