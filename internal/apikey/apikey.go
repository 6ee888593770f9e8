// Package apikey makes and reads API keys:
//
//	<prefix>_<30 random base62 characters><6 characters of their CRC-32>
//
// 30 characters carry 178 bits, so a plain SHA-256 of the key is enough at
// rest. The checksum lets a mistyped or invented key be refused without a
// look-up; it is no proof of anything.
package apikey

import (
	"crypto/rand"
	"crypto/sha256"
	"hash/crc32"
	"strings"
)

const (
	alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	random   = 30
	checksum = 6 // 62^6 > 2^32
)

// Key is a whole API key, the secret itself. It is shown once and never stored.
type Key string

// Hash is what the database holds of a key.
type Hash [sha256.Size]byte

// New makes a key.
func New(prefix string) Key {
	b := make([]byte, 0, random)
	for draw := make([]byte, 64); len(b) < random; {
		rand.Read(draw) // never fails: crypto/rand ends the process instead
		for _, c := range draw {
			// 248 is the largest multiple of 62 in a byte: the rest would make
			// some characters likelier.
			if c < 248 && len(b) < random {
				b = append(b, alphabet[c%62])
			}
		}
	}
	head := prefix + "_" + string(b)
	return Key(head + sum(head))
}

// Parse checks the form of a key: prefix, length, alphabet and checksum.
func Parse(prefix, s string) (Key, bool) {
	body, ok := strings.CutPrefix(s, prefix+"_")
	if !ok || len(body) != random+checksum {
		return "", false
	}
	head := s[:len(s)-checksum]
	for _, c := range []byte(body) {
		if strings.IndexByte(alphabet, c) < 0 {
			return "", false
		}
	}
	return Key(s), s[len(head):] == sum(head)
}

// Hash is the key as it is stored and looked up.
func (k Key) Hash() Hash { return sha256.Sum256([]byte(k)) }

// Hint is the part of the key that may be shown again: its prefix and its last
// four characters.
func (k Key) Hint() string {
	s := string(k)
	return s[:strings.LastIndexByte(s, '_')+1] + "..." + s[len(s)-4:]
}

func sum(head string) string {
	n := crc32.ChecksumIEEE([]byte(head))
	var b [checksum]byte
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = alphabet[n%62]
		n /= 62
	}
	return string(b[:])
}
