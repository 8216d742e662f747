package cluster

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"math/rand/v2"
)

// tensorItem is a medium's rendered tensors as the render service encodes them:
// msgpack, with the tensors inline as extension type 3.
type tensorItem struct {
	names  tensorNames
	shape  []int    // of the large one
	pixels []byte   // bfloat16
	slices [][2]int // where each medium of the prompt is among all of its modality
	grid   []int    // the small one: frames, rows and columns, or the length of audio
}

// tensorNames are the names of the large tensor and the small one, and whether the
// latter is kept on the CPU.
type tensorNames struct {
	large, small string
	kept         bool
}

// namesOf are those of Qwen2-VL and Qwen2.5-Omni.
func namesOf(modality string) tensorNames {
	switch modality {
	case audioModality:
		return tensorNames{"input_audio_features", "audio_feature_lengths", false}
	case videoModality:
		return tensorNames{"pixel_values_videos", "video_grid_thw", true}
	}
	return tensorNames{"pixel_values", "image_grid_thw", true}
}

// rawView is the msgpack extension type of a tensor's bytes.
const rawView = 3

func (t *tensorItem) encode() []byte {
	b := make(msgpack, 0, len(t.pixels)+200)
	b.header(0x80, 2)
	b.pixelEntry(t)
	b.gridEntry(t)
	return b
}

// metadata is the item without its pixels: what is left for a worker that has the
// image's embedding.
func (t *tensorItem) metadata() []byte {
	var b msgpack
	b.header(0x80, 1)
	b.gridEntry(t)
	return b
}

func (b *msgpack) pixelEntry(t *tensorItem) {
	b.text(t.names.large)
	b.header(0x80, 2)
	b.text("data")
	b.tensor("bfloat16", t.shape, t.pixels)
	b.text("field")
	b.header(0x90, 2)
	b.text("flat")
	b.header(0x80, 3)
	b.text("keep_on_cpu")
	b.truth(false)
	b.text("slices")
	b.header(0x90, len(t.slices))
	for _, slice := range t.slices {
		b.header(0x90, 1) // one dimension
		b.header(0x90, 3)
		b.integer(slice[0])
		b.integer(slice[1])
		*b = append(*b, 0xc0) // nil: no step
	}
	b.text("dim")
	b.integer(0)
}

func (b *msgpack) gridEntry(t *tensorItem) {
	b.text(t.names.small)
	b.header(0x80, 2)
	b.text("data")
	var grid []byte
	for _, n := range t.grid {
		grid = binary.LittleEndian.AppendUint64(grid, uint64(n))
	}
	b.tensor("int64", []int{len(t.grid)}, grid)
	b.text("field")
	b.header(0x90, 2)
	b.text("batched")
	b.header(0x80, 1)
	b.text("keep_on_cpu")
	b.truth(t.names.kept)
}

// tensorsOf returns the items of kwargs_data of a prompt's media, with pixels of
// that many bytes, and those of mm_metadata, "" for none. They are the same for the
// same media.
func tensorsOf(images []image, bytes int) (items, metadata []string) {
	rows := (bytes + 1) / 2 // of one bfloat16
	slices := map[string][][2]int{}
	for i := range images {
		of := images[i].modality
		n := len(slices[of])
		slices[of] = append(slices[of], [2]int{n * rows, (n + 1) * rows})
	}
	for i := range images {
		pixels := make([]byte, 2*rows)
		noise(images[i].hash, pixels)
		// Two by two patches make one token.
		grid := []int{1, 2, 2 * images[i].length}
		if images[i].modality == audioModality {
			grid = []int{4 * images[i].length}
		}
		item := tensorItem{namesOf(images[i].modality), []int{rows}, pixels, slices[images[i].modality], grid}
		items = append(items, base64.StdEncoding.EncodeToString(item.encode()))
		less := ""
		if item.names.kept {
			less = base64.StdEncoding.EncodeToString(item.metadata())
		}
		metadata = append(metadata, less)
	}
	return items, metadata
}

// noise fills b with bytes that depend on name alone.
func noise(name string, b []byte) {
	_, _ = rand.NewChaCha8(sha256.Sum256([]byte(name))).Read(b) // never fails
}

// areTensors reports whether an item of kwargs_data looks like one: base64 of a
// msgpack map.
func areTensors(item string) bool {
	data, err := base64.StdEncoding.DecodeString(item)
	return err == nil && len(data) > 0 && (data[0]&0xf0 == 0x80 || data[0] == 0xde || data[0] == 0xdf)
}

// msgpack is text in that format, in its shortest forms.
type msgpack []byte

// header begins a map (kind 0x80) or an array (0x90) of n entries.
func (b *msgpack) header(kind byte, n int) {
	switch long := byte(0xde) - 2*(kind>>4&1); { // 0xde: map16, 0xdc: array16
	case n < 16:
		*b = append(*b, kind|byte(n))
	case n < 1<<16:
		*b = binary.BigEndian.AppendUint16(append(*b, long), uint16(n))
	default:
		*b = binary.BigEndian.AppendUint32(append(*b, long+1), uint32(n))
	}
}

// text appends a string of less than 32 bytes.
func (b *msgpack) text(s string) { *b = append(append(*b, 0xa0|byte(len(s))), s...) }

func (b *msgpack) truth(t bool) {
	if t {
		*b = append(*b, 0xc3)
	} else {
		*b = append(*b, 0xc2)
	}
}

// integer appends a number that is not negative.
func (b *msgpack) integer(n int) {
	switch {
	case n < 1<<7:
		*b = append(*b, byte(n))
	case n < 1<<8:
		*b = append(*b, 0xcc, byte(n))
	case n < 1<<16:
		*b = binary.BigEndian.AppendUint16(append(*b, 0xcd), uint16(n))
	default:
		*b = binary.BigEndian.AppendUint32(append(*b, 0xce), uint32(n))
	}
}

// tensor appends [dtype, shape, bytes].
func (b *msgpack) tensor(dtype string, shape []int, data []byte) {
	b.header(0x90, 3)
	b.text(dtype)
	b.header(0x90, len(shape))
	for _, n := range shape {
		b.integer(n)
	}
	switch n := len(data); {
	case n == 1 || n == 2 || n == 4 || n == 8 || n == 16:
		fixed := map[int]byte{1: 0xd4, 2: 0xd5, 4: 0xd6, 8: 0xd7, 16: 0xd8}
		*b = append(*b, fixed[n])
	case n < 1<<8:
		*b = append(*b, 0xc7, byte(n))
	case n < 1<<16:
		*b = binary.BigEndian.AppendUint16(append(*b, 0xc8), uint16(n))
	default:
		*b = binary.BigEndian.AppendUint32(append(*b, 0xc9), uint32(n))
	}
	*b = append(append(*b, rawView), data...)
}
