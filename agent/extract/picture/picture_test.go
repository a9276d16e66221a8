package picture

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// webpFile is a lossless WebP of one pixel.
const webpFile = "UklGRhoAAABXRUJQVlA4TA0AAAAvAAAAEAcQERGIiP4HAA=="

// animatedWebP returns a WebP with frames that have the contents of a file.
func animatedWebP(file []byte, frames int) []byte {
	chunk := func(name string, body ...[]byte) []byte {
		all := slices.Concat(body...)
		b := binary.LittleEndian.AppendUint32([]byte(name), uint32(len(all)))
		return append(append(b, all...), make([]byte, len(all)%2)...)
	}
	body := chunk("VP8X", append([]byte{0x12}, make([]byte, 9)...))
	body = append(body, chunk("ANIM", make([]byte, 6))...)
	for range frames {
		body = append(body, chunk("ANMF", make([]byte, 16), file[12:])...)
	}
	return chunk("RIFF", []byte("WEBP"), body)
}

// corners returns a picture with a red, a green, a blue and a white quarter.
func corners(w, h int) *image.RGBA {
	m := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			c := color.RGBA{255, 0, 0, 255} // top left
			switch {
			case x >= w/2 && y < h/2:
				c = color.RGBA{0, 255, 0, 255}
			case x < w/2 && y >= h/2:
				c = color.RGBA{0, 0, 255, 255}
			case x >= w/2:
				c = color.RGBA{255, 255, 255, 255}
			}
			m.SetRGBA(x, y, c)
		}
	}
	return m
}

// noise returns a picture that does not compress well.
func noise(w, h int) *image.RGBA {
	m := image.NewRGBA(image.Rect(0, 0, w, h))
	r := rand.New(rand.NewPCG(1, 2))
	for i := range m.Pix {
		m.Pix[i] = byte(r.Uint32()) | byte(i%4/3*255)
	}
	return m
}

func jpegOf(t testing.TB, m image.Image) []byte {
	var b bytes.Buffer
	if err := jpeg.Encode(&b, m, nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func pngOf(t testing.TB, m image.Image) []byte {
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gifOf(t testing.TB, frames int) []byte {
	g := &gif.GIF{}
	for range frames {
		g.Image = append(g.Image, image.NewPaletted(image.Rect(0, 0, 20, 10), color.Palette{
			color.Black, color.White}))
		g.Delay = append(g.Delay, 1)
	}
	var b bytes.Buffer
	if err := gif.EncodeAll(&b, g); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// turned adds an orientation to a JPEG file.
func turned(file []byte, order binary.AppendByteOrder, orientation uint16) []byte {
	mark := "MM\x00*"
	if order == binary.AppendByteOrder(binary.LittleEndian) {
		mark = "II*\x00"
	}
	b := order.AppendUint16(order.AppendUint32([]byte("Exif\x00\x00"+mark), 8), 2)
	for _, entry := range [][2]uint16{{0x0100, 7}, {0x0112, orientation}} {
		b = order.AppendUint32(order.AppendUint16(order.AppendUint16(b, entry[0]), 3), 1)
		b = append(order.AppendUint16(b, entry[1]), 0, 0)
	}
	head := binary.BigEndian.AppendUint16([]byte{0xff, 0xd8, 0xff, 0xe1}, uint16(len(b)+2))
	return append(append(head, b...), file[2:]...)
}

func decoded(t *testing.T, data []byte, mime string) image.Image {
	t.Helper()
	m, kind, err := image.Decode(bytes.NewReader(data))
	if err != nil || "image/"+kind != mime {
		t.Fatalf("got %s as %s (%v)", kind, mime, err)
	}
	return m
}

func TestFitsAlready(t *testing.T) {
	// A segment of the kind JPG0, which Go's decoder does not know, before the end of the picture.
	rare := jpegOf(t, corners(40, 20))
	endless := bytes.Clone(rare[:len(rare)-2])
	rare = append(rare[:len(rare)-2], "\xff\xf0\x00\x02\xff\xd9"...)
	for name, tt := range map[string]struct {
		file []byte
		mime string
	}{
		"jpeg":      {jpegOf(t, corners(40, 20)), "image/jpeg"},
		"png":       {pngOf(t, corners(40, 20)), "image/png"},
		"rare jpeg": {rare, "image/jpeg"},
		"no end":    {endless, "image/jpeg"},
		"upright jpeg": {
			turned(jpegOf(t, corners(40, 20)), binary.BigEndian, 1), "image/jpeg"},
	} {
		t.Run(name, func(t *testing.T) {
			got, mime, err := Fit(tt.file, 40, len(tt.file))
			if err != nil || mime != tt.mime || !bytes.Equal(got, tt.file) {
				t.Errorf("got %d bytes of %s (%v), want %d", len(got), mime, err, len(tt.file))
			}
		})
	}
}

func TestScaled(t *testing.T) {
	webp, err := base64.StdEncoding.DecodeString(webpFile)
	if err != nil {
		t.Fatal(err)
	}
	transparent := corners(300, 200)
	transparent.SetRGBA(0, 0, color.RGBA{})
	for name, tt := range map[string]struct {
		file          []byte
		longest       int
		bytes         int
		width, height int
		mime          string
	}{
		"wide":          {jpegOf(t, corners(300, 200)), 150, 0, 150, 100, "image/jpeg"},
		"high":          {jpegOf(t, corners(200, 301)), 150, 0, 100, 150, "image/jpeg"},
		"thin":          {pngOf(t, corners(3000, 2)), 150, 0, 150, 1, "image/jpeg"},
		"opaque PNG":    {pngOf(t, corners(300, 200)), 150, 0, 150, 100, "image/jpeg"},
		"transparent":   {pngOf(t, transparent), 150, 0, 150, 100, "image/png"},
		"GIF":           {gifOf(t, 1), 150, 0, 20, 10, "image/jpeg"},
		"WebP":          {webp, 150, 0, 1, 1, "image/png"},
		"animation":     {gifOf(t, 2), 150, 0, 20, 10, "image/jpeg"},
		"animated WebP": {animatedWebP(webp, 2), 150, 0, 1, 1, "image/png"},
		"strips":        {pngOf(t, corners(777, 555)), 400, 0, 400, 286, "image/jpeg"},
		"enough bytes":  {pngOf(t, noise(100, 100)), 0, 25_000, 100, 100, "image/jpeg"},
		"too few bytes": {pngOf(t, noise(400, 400)), 0, 25_000, 225, 225, "image/jpeg"},
	} {
		t.Run(name, func(t *testing.T) {
			got, mime, err := Fit(tt.file, tt.longest, tt.bytes)
			if err != nil || mime != tt.mime {
				t.Fatalf("got %s, %v", mime, err)
			}
			if tt.bytes > 0 && len(got) > tt.bytes {
				t.Errorf("%d bytes", len(got))
			}
			m := decoded(t, got, mime)
			if size := m.Bounds().Size(); size != image.Pt(tt.width, tt.height) {
				t.Errorf("got %v, want %d × %d", size, tt.width, tt.height)
			}
		})
	}
}

// The picture is scaled in strips. The strips leave no visible seams in a gradient.
func TestScaledSmoothly(t *testing.T) {
	src := image.NewGray(image.Rect(10, 20, 1010, 1020))
	for i := range src.Pix {
		src.Pix[i] = byte((i%1000 + i/1000) / 8)
	}
	m := scaled(src, 500)
	for y := 1; y < 500; y++ {
		for x := 1; x < 500; x++ {
			want := float64(2*x+2*y+1) / 8
			if got := float64(m.RGBAAt(x, y).R); math.Abs(got-want) > 2 {
				t.Fatalf("%v at %d, %d, want %v", got, x, y, want)
			}
		}
	}
}

func TestOrientation(t *testing.T) {
	// The quarters in which the red and the green corner of the file are shown.
	const topLeft, topRight, bottomLeft, bottomRight = 0, 1, 2, 3
	want := map[uint16][2]int{
		2: {topRight, topLeft}, 3: {bottomRight, bottomLeft}, 4: {bottomLeft, bottomRight},
		5: {topLeft, bottomLeft}, 6: {topRight, bottomRight}, 7: {bottomRight, topRight},
		8: {bottomLeft, topLeft},
	}
	for orientation, quarters := range want {
		for _, order := range []binary.AppendByteOrder{binary.BigEndian, binary.LittleEndian} {
			file := turned(jpegOf(t, corners(80, 40)), order, orientation)
			got, mime, err := Fit(file, 100, 0)
			if err != nil {
				t.Fatal(err)
			}
			m := decoded(t, got, mime)
			size := m.Bounds().Size()
			if wide := orientation < 5; wide != (size.X == 80 && size.Y == 40) {
				t.Errorf("orientation %d: size %v", orientation, size)
			}
			for i, quarter := range quarters {
				c := m.At(size.X/4+quarter%2*size.X/2, size.Y/4+quarter/2*size.Y/2)
				r, g, _, _ := c.RGBA()
				if red := r > g; red != (i == 0) {
					t.Errorf("orientation %d: %v in quarter %d", orientation, c, quarter)
				}
			}
		}
	}
}

func TestTransparentPNGOfTooManyBytes(t *testing.T) {
	m := noise(200, 200)
	m.SetRGBA(0, 0, color.RGBA{})
	got, mime, err := Fit(pngOf(t, m), 0, 60_000)
	if err != nil || mime != "image/jpeg" {
		t.Fatalf("got %s, %v", mime, err)
	}
	if r, _, _, _ := decoded(t, got, mime).At(0, 0).RGBA(); r < 0x4000 {
		t.Errorf("what is transparent is not white but %x", r)
	}
}

// hugePNG returns a small file whose header claims a large picture.
func hugePNG(w, h uint32, depth, colorType byte) []byte {
	b := []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR")
	b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, w), h)
	b = append(b, depth, colorType, 0, 0, 0)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b[12:]))
}

// progressiveJPEG returns the beginning of a progressive JPEG file, up to its first pass. See
// [passes].
func progressiveJPEG(t testing.TB, m image.Image) []byte {
	file := bytes.Replace(jpegOf(t, m), []byte{0xff, 0xc0}, []byte{0xff, 0xc2}, 1)
	return file[:bytes.Index(file, []byte{0xff, 0xda})]
}

// passes adds n passes to the beginning of a JPEG file. The data of a pass contains bytes that
// look like markers.
func passes(head []byte, n int) []byte {
	pass := []byte("\xff\xda\x00\x08\x01\x01\x00\x00\x00\x00\x12\xff\x00\xda\xff\xd0\x34")
	return append(append(bytes.Clone(head), bytes.Repeat(pass, n)...), 0xff, 0xd9)
}

func TestPasses(t *testing.T) {
	head := turned(progressiveJPEG(t, corners(40, 20)), binary.BigEndian, 6)
	for n, want := range map[int]int{0: 0, 1: 1, 100: 100, 5000: 101} {
		// Data after the end of the picture does not count.
		file := append(passes(head, n), passes(head, 200)...)
		if got := scanJPEG(file); got != (jpegScan{6, true, want}) {
			t.Errorf("%d passes: got %+v", n, got)
		}
	}
}

func TestRefused(t *testing.T) {
	good, whole := jpegOf(t, corners(40, 20)), pngOf(t, corners(40, 20))
	progressive := bytes.Replace(jpegOf(t, corners(40, 20)), []byte{0xff, 0xc0}, []byte{0xff, 0xc2}, 1)
	i := bytes.Index(progressive, []byte{0xff, 0xc2})
	copy(progressive[i+5:], []byte{0x17, 0x70, 0x17, 0x70}) // 6,000 × 6,000
	for name, tt := range map[string]struct {
		file []byte
		want error // nil for any error
	}{
		"empty":           {nil, ErrUnsupported},
		"text":            {[]byte("hello, world"), ErrUnsupported},
		"HEIC":            {[]byte("\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic"), ErrUnsupported},
		"wide bomb":       {hugePNG(60_000, 60_000, 8, 2), ErrTooLarge},
		"overflow":        {hugePNG(math.MaxInt32, math.MaxInt32, 8, 2), nil},
		"deep bomb":       {hugePNG(7_000, 7_000, 16, 6), ErrTooLarge},
		"progressive":     {progressive, ErrTooLarge},
		"many passes":     {passes(progressiveJPEG(t, corners(40, 20)), 101), ErrTooMany},
		"large file":      {make([]byte, maxFile+1), ErrTooLarge},
		"truncated":       {turned(good[:len(good)/2], binary.BigEndian, 6), nil},
		"cut in a header": {good[:10], nil},
		"without end":     {good[:len(good)-10], nil},
		"PNG without end": {whole[:len(whole)-20], nil},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _, err := Fit(tt.file, 2048, 1<<20)
			runtime.ReadMemStats(&after)
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 8<<20 {
				t.Errorf("%d bytes were allocated", used)
			}
		})
	}
	_, _, err := Fit(pngOf(t, noise(200, 200)), 0, 10)
	if !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v for 10 bytes", err)
	}
}

func FuzzFit(f *testing.F) {
	webp, err := base64.StdEncoding.DecodeString(webpFile)
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range [][]byte{
		jpegOf(f, corners(40, 20)), turned(jpegOf(f, corners(16, 8)), binary.LittleEndian, 6),
		pngOf(f, corners(20, 10)), gifOf(f, 1), gifOf(f, 3), webp, hugePNG(9, 9, 16, 6),
		animatedWebP(webp, 2),
	} {
		f.Add(file)
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		l := limits{longest: 10, bytes: 2000, pixels: 1 << 16, decoded: 1 << 20}
		data, mime, err := fit(file, l) // the fuzzer reports 10 s as a failure
		if err != nil {
			return
		}
		if len(data) > l.bytes {
			t.Errorf("%d bytes", len(data))
		}
		c, kind, err := image.DecodeConfig(bytes.NewReader(data))
		if err != nil || "image/"+kind != mime || max(c.Width, c.Height) > l.longest {
			t.Errorf("got %s for %s, %d × %d, %v", kind, mime, c.Width, c.Height, err)
		}
	})
}

// BenchmarkFit12MP also reports the peak of the memory in use.
func BenchmarkFit12MP(b *testing.B) {
	m := noise(500, 375)
	large := image.NewRGBA(image.Rect(0, 0, 4000, 3000))
	for y := range 3000 {
		for x := range 4000 {
			large.SetRGBA(x, y, m.RGBAAt(x/8, y/8))
		}
	}
	file := jpegOf(b, large)
	large, m = nil, nil
	runtime.GC()
	var peak atomic.Uint64
	done, stopped := make(chan bool), make(chan bool)
	go func() {
		defer close(stopped)
		for {
			var s runtime.MemStats
			runtime.ReadMemStats(&s)
			peak.Store(max(peak.Load(), s.HeapAlloc))
			select {
			case <-done:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := Fit(file, 2048, 4<<20); err != nil {
			b.Fatal(err)
		}
	}
	close(done)
	<-stopped
	b.ReportMetric(float64(peak.Load())/(1<<20), "peak-MB")
}
