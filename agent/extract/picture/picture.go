// Package picture makes pictures fit for a language model: [Fit] turns them upright, scales
// them down and encodes them so that they keep a limit.
//
// It reads JPEG, PNG, GIF and WebP, told by their content. A picture is refused before it is
// decoded if that would take more than 256 MiB, or more than 100 passes. The package owns no tables
// or files.
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

	"golang.org/x/image/webp"
)

// ErrUnsupported reports that the format is not one that can be read.
var ErrUnsupported = errors.New("picture: not a JPEG, PNG, GIF or WebP picture")

// ErrTooLarge reports that a picture is too large to be read, or can't be made small enough.
var ErrTooLarge = errors.New("picture: it is too large")

// ErrTooMany reports that a JPEG is stored in more passes than any encoder makes: a pass of a few
// bytes takes as long as one over the whole picture.
var ErrTooMany = fmt.Errorf("picture: it is stored in more than %d passes", maxPasses)

const (
	maxPasses  = 100      // libjpeg-turbo's advice; usual are 10
	maxFile    = 64 << 20 // bytes of a file
	maxPixels  = 50_000_000
	maxDecoded = 256 << 20 // bytes that decoding may take
)

// The MIME types of the pictures that are read.
const (
	typeJPEG = "image/jpeg"
	typePNG  = "image/png"
	typeGIF  = "image/gif"
	typeWebP = "image/webp"
)

// Fit returns the picture in r with sides of at most longest pixels and at most maxBytes bytes,
// and its MIME type; 0 or less is no limit. A picture that fits is returned as it is, unless it
// is an animated GIF or a JPEG that is not upright: it becomes its first frame, or is turned. Any
// other is encoded anew: as PNG if it is transparent and that is small enough, else as JPEG.
//
// The error is [ErrUnsupported], [ErrTooLarge], that of r, or says what is wrong with the file.
func Fit(r io.ReadSeeker, longest, maxBytes int) (data []byte, mime string, err error) {
	return fit(r, limits{longest, maxBytes, maxPixels, maxDecoded})
}

// limits bound a picture: what comes out, and what is read.
type limits struct {
	longest, bytes  int
	pixels, decoded int
}

func fit(r io.ReadSeeker, l limits) ([]byte, string, error) {
	file, err := readFile(r)
	if err != nil {
		return nil, "", err
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
	if !f.animated && f.orientation <= 1 && fits(max(w, h), l.longest) && fits(len(file), l.bytes) {
		return file, f.mime, nil
	}
	src, err := f.decode(bytes.NewReader(file))
	if err != nil {
		return nil, "", fmt.Errorf("picture: it is damaged: %w", err)
	}
	return shrink(src, f.orientation, l)
}

// fits reports whether n keeps a limit, if there is one.
func fits(n, limit int) bool { return limit <= 0 || n <= limit }

// readFile reads r from its beginning.
func readFile(r io.ReadSeeker) ([]byte, error) {
	size, err := r.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, fmt.Errorf("picture: %w", err)
	}
	if size > maxFile {
		return nil, fmt.Errorf("%w (%d MB)", ErrTooLarge, size>>20)
	}
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("picture: %w", err)
	}
	file := make([]byte, 0, size+1)
	for len(file) <= maxFile {
		n, err := r.Read(file[len(file):cap(file)])
		file = file[:len(file)+n]
		if errors.Is(err, io.EOF) {
			return file, nil
		}
		if err != nil {
			return nil, fmt.Errorf("picture: %w", err)
		}
		if len(file) == cap(file) { // it grew
			file = append(file, 0)[:len(file)]
		}
	}
	return nil, ErrTooLarge
}

// A format is what is known of a file before it is decoded.
type format struct {
	mime        string
	config      image.Config
	decode      func(io.Reader) (image.Image, error)
	pixelBytes  int // that decoding takes for each pixel
	orientation int // of EXIF, 1 to 8; 0 if unknown
	animated    bool
}

// inspect tells the format of a file by its content.
func inspect(file []byte) (f format, err error) {
	r := bytes.NewReader(file)
	switch {
	case bytes.HasPrefix(file, []byte("\xff\xd8\xff")):
		f = format{mime: typeJPEG, decode: jpeg.Decode}
		f.config, err = jpeg.DecodeConfig(r)
		scan := scanJPEG(file)
		if err == nil && scan.passes > maxPasses {
			return f, ErrTooMany
		}
		f.orientation, f.pixelBytes = scan.orientation, 4
		if scan.progressive {
			f.pixelBytes = 16 // coefficients of all components are kept
		}
	case bytes.HasPrefix(file, []byte("\x89PNG\r\n\x1a\n")):
		f = format{mime: typePNG, decode: png.Decode, pixelBytes: 4}
		f.config, err = png.DecodeConfig(r)
		switch f.config.ColorModel {
		case color.NRGBA64Model, color.RGBA64Model, color.Gray16Model:
			f.pixelBytes = 8
		}
	case bytes.HasPrefix(file, []byte("GIF87a")), bytes.HasPrefix(file, []byte("GIF89a")):
		f = format{mime: typeGIF, decode: gif.Decode, pixelBytes: 2, animated: isAnimated(file)}
		f.config, err = gif.DecodeConfig(r)
	case len(file) > 20 && string(file[:4]) == "RIFF" && string(file[8:12]) == "WEBP":
		f = format{mime: typeWebP, decode: webp.Decode, pixelBytes: 8}
		f.config, err = webp.DecodeConfig(r)
	default:
		return f, ErrUnsupported
	}
	if err != nil {
		return f, fmt.Errorf("picture: it is damaged: %w", err)
	}
	return f, nil
}
