//go:build !unix

package podsync

const nonBlock = 0
