package picture

import (
	"bytes"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"

	"golang.org/x/image/draw"
)

// qualities are the JPEG qualities to try until the file is small enough.
var qualities = []int{85, 70, 50}

// leastSide is the minimum length of the longer side, in pixels, when a picture is scaled down to
// save bytes.
const leastSide = 64

// shrink scales src down, rotates it upright and encodes it. If the result has too many bytes,
// shrink scales src down further.
func shrink(src image.Image, orientation int, l limits) ([]byte, string, error) {
	size := src.Bounds().Size()
	longest := max(size.X, size.Y)
	if l.longest > 0 {
		longest = min(longest, l.longest)
	}
	for {
		dst := upright(scaled(src, longest), orientation)
		data, mime, err := encode(dst, l.bytes)
		if err != nil || data != nil {
			return data, mime, err
		}
		if longest = longest * 3 / 4; longest < leastSide {
			return nil, "", ErrTooLarge
		}
		src, orientation = dst, 1
	}
}

// encode returns m as a file of at most limit bytes, or nil if that is not possible.
func encode(m *image.RGBA, limit int) ([]byte, string, error) {
	var b bytes.Buffer
	if !m.Opaque() {
		if err := png.Encode(&b, m); err != nil {
			return nil, "", err
		}
		if fits(b.Len(), limit) {
			return b.Bytes(), typePNG, nil
		}
		m = onWhite(m)
	}
	for _, quality := range qualities {
		b.Reset()
		if err := jpeg.Encode(&b, m, &jpeg.Options{Quality: quality}); err != nil {
			return nil, "", err
		}
		if fits(b.Len(), limit) {
			return b.Bytes(), typeJPEG, nil
		}
	}
	return nil, "", nil
}

func onWhite(m *image.RGBA) *image.RGBA {
	dst := image.NewRGBA(m.Rect)
	draw.Draw(dst, dst.Rect, image.NewUniform(color.White), image.Point{}, draw.Src)
	draw.Draw(dst, dst.Rect, m, m.Rect.Min, draw.Over)
	return dst
}

// scaled returns src scaled so that its longer side has the given length, or a copy if it is not
// longer.
//
// A scaler keeps 32 bytes for each combination of a source column and a destination row: hundreds
// of megabytes for a photo. So scaled first scales one direction and then the other, in strips. In
// the direction that keeps its length, pixels do not affect each other, so there are no seams.
func scaled(src image.Image, longest int) *image.RGBA {
	r := src.Bounds()
	w, h := r.Dx(), r.Dy()
	if max(w, h) <= longest {
		dst := image.NewRGBA(image.Rect(0, 0, w, h))
		draw.Draw(dst, dst.Rect, src, r.Min, draw.Src)
		return dst
	}
	dw, dh := side(w, longest, max(w, h)), side(h, longest, max(w, h))
	const strip = 128
	narrow := image.NewRGBA(image.Rect(0, 0, dw, h))
	scaler := draw.CatmullRom.NewScaler(dw, strip, w, strip)
	for y := 0; y < h; y += strip {
		end := min(y+strip, h)
		scaler.Scale(narrow, image.Rect(0, y, dw, end), src,
			image.Rect(r.Min.X, r.Min.Y+y, r.Max.X, r.Min.Y+end), draw.Src, nil)
	}
	dst := image.NewRGBA(image.Rect(0, 0, dw, dh))
	scaler = draw.CatmullRom.NewScaler(strip, dh, strip, h)
	for x := 0; x < dw; x += strip {
		end := min(x+strip, dw)
		scaler.Scale(dst, image.Rect(x, 0, end, dh), narrow, image.Rect(x, 0, end, h),
			draw.Src, nil)
	}
	return dst
}

// side returns n scaled by the ratio to/from, at least 1.
func side(n, to, from int) int { return max(1, (n*to+from/2)/from) }

// upright returns m rotated and mirrored according to the EXIF orientation. 1 is upright, 2 to 4
// are mirrored or upside down, and from 5 on the sides are swapped.
func upright(m *image.RGBA, orientation int) *image.RGBA {
	if orientation < 2 || orientation > 8 {
		return m
	}
	w, h := m.Rect.Dx(), m.Rect.Dy()
	if orientation >= 5 {
		w, h = h, w
	}
	dst := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			sx, sy := x, y
			switch orientation {
			case 2:
				sx = w - 1 - x
			case 3:
				sx, sy = w-1-x, h-1-y
			case 4:
				sy = h - 1 - y
			case 5:
				sx, sy = y, x
			case 6:
				sx, sy = y, w-1-x
			case 7:
				sx, sy = h-1-y, w-1-x
			case 8:
				sx, sy = h-1-y, x
			}
			dst.SetRGBA(x, y, m.RGBAAt(sx, sy))
		}
	}
	return dst
}
