package client

import (
	"iter"
	"net/url"
	"strconv"
)

// selection is the part of a query that all lists have.
func selection[S ~string](states []S, labels map[string]string, size int, cursor string) url.Values {
	v := url.Values{}
	for _, s := range states {
		v.Add("state", string(s))
	}
	for name, value := range labels {
		v.Add("label", name+"="+value)
	}
	if size > 0 {
		v.Set("limit", strconv.Itoa(size))
	}
	if cursor != "" {
		v.Set("cursor", cursor)
	}
	return v
}

// pages goes through what is on all pages from a cursor on, and fetches them as
// they are needed. It ends after an error.
func pages[T any](cursor string, page func(cursor string) (items []T, next string, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		at := cursor
		for {
			items, next, err := page(at)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			at = next
		}
	}
}
