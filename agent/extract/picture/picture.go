// Package picture converts pictures for a language model. [Fit] rotates them upright, scales them
// down and encodes them within a size limit.
//
// It supports JPEG, PNG, GIF and WebP, detected from the content. It refuses a picture, before
// decoding it, if that would take more than 256 MiB or more than 100 passes. The package has no
// database tables or files.
package picture

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"strings"

	"golang.org/x/image/webp"
)

// ErrUnsupported reports that the format is not supported.
var ErrUnsupported = errors.New("picture: not a JPEG, PNG, GIF or WebP picture")

// ErrTooLarge reports that a picture is too large to decode, or can't be made small enough.
var ErrTooLarge = errors.New("picture: it is too large")

// ErrTooMany reports that a JPEG has more passes than any encoder creates. A pass of a few bytes
// takes as long as one over the whole picture.
var ErrTooMany = fmt.Errorf("picture: it is stored in more than %d passes", maxPasses)

const (
	maxPasses  = 100      // the recommendation of libjpeg-turbo; 10 are usual
	maxFile    = 64 << 20 // bytes of a file
	maxPixels  = 50_000_000
	maxDecoded = 256 << 20 // bytes that decoding may use
)

// The MIME types of the result. Every model that sees pictures reads them.
const (
	typeJPEG = "image/jpeg"
	typePNG  = "image/png"
)

// Fit returns the picture in file with sides of at most longest pixels and a size of at most
// maxBytes bytes, and its MIME type. A limit of 0 or less means no limit. Fit returns a PNG or an
// upright JPEG that fits unchanged, if it is not damaged. It encodes other pictures as PNG if they
// are transparent and small enough as PNG, and otherwise as JPEG: Gemini refuses GIF, and
// llama.cpp, Ollama and xAI do not read WebP. Of an animation it returns the first frame.
//
// The error is [ErrUnsupported], [ErrTooLarge], [ErrTooMany], or describes the damage of the file.
func Fit(file []byte, longest, maxBytes int) (data []byte, mime string, err error) {
	return fit(file, limits{longest, maxBytes, maxPixels, maxDecoded})
}

// limits are the limits of the result and of the input.
type limits struct {
	longest, bytes  int
	pixels, decoded int
}

func fit(file []byte, l limits) ([]byte, string, error) {
	if len(file) > maxFile {
		return nil, "", fmt.Errorf("%w (%d MB)", ErrTooLarge, len(file)>>20)
	}
	f, err := inspect(file)
	if err != nil {
		return nil, "", err
	}
	w, h := f.config.Width, f.config.Height
	if w <= 0 || h <= 0 {
		return nil, "", errors.New("picture: it has no pixels")
	}
	if w > l.pixels/h || w*h > l.decoded/f.pixelBytes {
		return nil, "", fmt.Errorf("%w, with %d × %d pixels", ErrTooLarge, w, h)
	}
	ready := f.mime != "" && f.orientation <= 1 && fits(max(w, h), l.longest) &&
		fits(len(file), l.bytes)
	// It is decoded even if it is ready, because models refuse a request with a damaged picture.
	src, err := f.decode(bytes.NewReader(file))
	_, rare := errors.AsType[jpeg.UnsupportedError](err) // a model may read such a JPEG
	switch {
	case err != nil && !(ready && rare):
		return nil, "", fmt.Errorf("picture: it is damaged: %w", err)
	case ready:
		return file, f.mime, nil
	}
	return shrink(src, f.orientation, l)
}

// fits reports whether n is within limit. A limit of 0 or less means no limit.
func fits(n, limit int) bool { return limit <= 0 || n <= limit }

// A format describes a file before it is decoded.
type format struct {
	mime        string // "" if the file must be converted
	config      image.Config
	decode      func(io.Reader) (image.Image, error)
	pixelBytes  int // bytes that decoding needs for each pixel
	orientation int // EXIF orientation, 1 to 8; 0 if unknown
}

// inspect detects the format of a file from its content.
func inspect(file []byte) (f format, err error) {
	r := bytes.NewReader(file)
	switch {
	case bytes.HasPrefix(file, []byte("\xff\xd8\xff")):
		f = format{mime: typeJPEG, decode: func(r io.Reader) (image.Image, error) {
			// Some cameras leave out the mark of the end.
			return jpeg.Decode(io.MultiReader(r, strings.NewReader("\xff\xd9")))
		}}
		f.config, err = jpeg.DecodeConfig(r)
		scan := scanJPEG(file)
		if err == nil && scan.passes > maxPasses {
			return f, ErrTooMany
		}
		f.orientation, f.pixelBytes = scan.orientation, 4
		if scan.progressive {
			f.pixelBytes = 16 // the decoder keeps the coefficients of all components
		}
	case bytes.HasPrefix(file, []byte("\x89PNG\r\n\x1a\n")):
		f = format{mime: typePNG, decode: png.Decode, pixelBytes: 4}
		f.config, err = png.DecodeConfig(r)
		switch f.config.ColorModel {
		case color.NRGBA64Model, color.RGBA64Model, color.Gray16Model:
			f.pixelBytes = 8
		}
	case bytes.HasPrefix(file, []byte("GIF87a")), bytes.HasPrefix(file, []byte("GIF89a")):
		f = format{decode: gif.Decode, pixelBytes: 2}
		f.config, err = gif.DecodeConfig(r)
	case len(file) > 20 && string(file[:4]) == "RIFF" && string(file[8:12]) == "WEBP":
		still := stillWebP(file) // the decoder can't read animations
		f = format{pixelBytes: 8, decode: func(io.Reader) (image.Image, error) {
			return webp.Decode(bytes.NewReader(still))
		}}
		f.config, err = webp.DecodeConfig(bytes.NewReader(still))
	default:
		return f, ErrUnsupported
	}
	if err != nil {
		return f, fmt.Errorf("picture: it is damaged: %w", err)
	}
	return f, nil
}
