package cluster

import (
	"bytes"
	"encoding/base64"
	stdimage "image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"path"
	"sync"
)

// nameTag is how many bytes at least make an image differ from those of other
// names.
const nameTag = 8

// ImageBytes returns the image that the cluster's origin serves under a name, with
// n bytes, or with as few as there can be if n is less. The name ends with .png,
// .jpg, .jpeg, .gif or .webp; for any other there is none. It is one black pixel,
// which every decoder takes; what follows its end depends on the name alone.
func ImageBytes(name string, n int) []byte {
	pixel := onePixel()[imageType(name)]
	if pixel == nil {
		return nil
	}
	data := make([]byte, max(n, len(pixel)+nameTag))
	noise(name, data[copy(data, pixel):])
	return data
}

// DataURI returns the image of [ImageBytes] as a data URI.
func DataURI(name string, n int) string {
	return "data:" + imageType(name) + ";base64," + base64.StdEncoding.EncodeToString(ImageBytes(name, n))
}

// imageType is the media type that a name stands for, "" if none.
func imageType(name string) string {
	return map[string]string{
		".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp",
	}[path.Ext(name)]
}

// onePixel are the smallest images by their media types.
var onePixel = sync.OnceValue(func() map[string][]byte {
	black := stdimage.NewPaletted(stdimage.Rect(0, 0, 1, 1), color.Palette{color.Black, color.White})
	write := func(encode func(*bytes.Buffer) error) []byte {
		var b bytes.Buffer
		if err := encode(&b); err != nil {
			panic(err) // a buffer takes everything
		}
		return b.Bytes()
	}
	return map[string][]byte{
		"image/png":  write(func(b *bytes.Buffer) error { return png.Encode(b, black) }),
		"image/jpeg": write(func(b *bytes.Buffer) error { return jpeg.Encode(b, black, nil) }),
		"image/gif":  write(func(b *bytes.Buffer) error { return gif.Encode(b, black, nil) }),
		// The library reads no WebP and writes none: a RIFF with one lossless chunk.
		"image/webp": []byte("RIFF\x1a\x00\x00\x00WEBPVP8L\r\x00\x00\x00/\x00\x00\x00\x10\a\x10\x11\x11\x88\x88\xfe\a\x00"),
	}
})
