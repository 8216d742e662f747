package wire

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Modality is a kind of media that is served.
type Modality uint8

// The modalities, which features call by these names.
const (
	Image Modality = iota
	Audio
	Video

	// Modalities is how many there are.
	Modalities
)

var modalityNames = [Modalities]string{"image", "audio", "video"}

// String returns the modality's name in features, metrics and settings.
func (m Modality) String() string { return modalityNames[m] }

// modalityOf returns the modality that a name in features, with its quotes,
// stands for, if we know it.
func modalityOf(name []byte) (Modality, bool) {
	for m, known := range modalityNames {
		if NameIs(name, known) {
			return Modality(m), true
		}
	}
	return 0, false
}

// byOffset orders spans by their places.
func byOffset(a, b Span) int { return cmp.Or(a.Offset-b.Offset, a.Length-b.Length) }

// apart returns an error if spans, of whatever modality, share token ids. Workers
// of newer versions refuse that; older ones put an embedding where another one
// belongs.
func apart(spans []Span) error {
	if !slices.IsSortedFunc(spans, byOffset) {
		spans = slices.SortedFunc(slices.Values(spans), byOffset)
	}
	for i := 1; i < len(spans); i++ {
		if last := &spans[i-1]; spans[i].Offset < last.Offset+last.Length {
			return errors.New("two of mm_placeholders overlap")
		}
	}
	return nil
}

// arrange puts the media, which are grouped by modality, into the order of the
// entries of a chat request. An error says that there are others.
func (f *Features) arrange(m *Media) error {
	var have, want, next [Modalities]int
	for i := range f.Items {
		have[f.Items[i].Modality]++
	}
	for i := range m.Len() {
		want[m.Modality(i)]++
	}
	at := 0
	for k := range Modalities {
		if have[k] != want[k] {
			return fmt.Errorf("it has %d media of modality %s, the request has %d", have[k], k, want[k])
		}
		next[k] = at
		at += have[k]
	}
	if have[Image] == at || have[Audio] == at || have[Video] == at {
		return nil // one modality is in order already
	}
	items := make([]Span, 0, at)
	for i := range m.Len() {
		k := m.Modality(i)
		items = append(items, f.Items[next[k]])
		next[k]++
	}
	f.Items = items
	return nil
}
