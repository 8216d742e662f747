package cluster

import (
	"container/list"
	"fmt"
	"hash/fnv"
	"sync"
)

const (
	bos        = 1 // the token that every prompt begins with
	minTokenID = 1000
	maxTokenID = 100000
	maxWords   = 50000 // words known at a time: half of the ids, so that free ones are near
	longWord   = 1024  // bytes; longer words are not remembered
)

// vocabulary gives each word a token id and finds the word of an id again. A
// word's id is its hash; if another known word has that one, the next free id. The
// words used least recently are forgotten when there are too many. It is safe
// for concurrent use.
type vocabulary struct {
	mu     sync.Mutex
	byWord map[string]*list.Element // of entry
	byID   map[int]*list.Element
	recent *list.List // most recently used first
}

type entry struct {
	word string
	id   int
}

func newVocabulary() *vocabulary {
	return &vocabulary{byWord: map[string]*list.Element{}, byID: map[int]*list.Element{}, recent: list.New()}
}

// encode returns the ids of a prompt: bos, and one for each word.
func (v *vocabulary) encode(words []string) []int {
	v.mu.Lock()
	defer v.mu.Unlock()
	ids := make([]int, 1, len(words)+1)
	ids[0] = bos
	for _, word := range words {
		ids = append(ids, v.id(word))
	}
	return ids
}

// decode returns the words of a prompt's ids. An id without a word reads
// "tok<id>".
func (v *vocabulary) decode(ids []int) []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(ids) > 0 && ids[0] == bos {
		ids = ids[1:]
	}
	words := make([]string, len(ids))
	for i, id := range ids {
		if e, ok := v.byID[id]; ok {
			v.recent.MoveToFront(e)
			words[i] = e.Value.(entry).word
		} else {
			words[i] = fmt.Sprintf("tok%d", id)
		}
	}
	return words
}

func (v *vocabulary) id(word string) int {
	if e, ok := v.byWord[word]; ok {
		v.recent.MoveToFront(e)
		return e.Value.(entry).id
	}
	hash := fnv.New64a()
	hash.Write([]byte(word))
	id := minTokenID + int(hash.Sum64()%(maxTokenID-minTokenID+1))
	if len(word) > longWord {
		return id
	}
	for v.byID[id] != nil {
		if id++; id > maxTokenID {
			id = minTokenID
		}
	}
	if v.recent.Len() == maxWords {
		oldest := v.recent.Remove(v.recent.Back()).(entry)
		delete(v.byWord, oldest.word)
		delete(v.byID, oldest.id)
	}
	e := v.recent.PushFront(entry{word, id})
	v.byWord[word], v.byID[id] = e, e
	return id
}
