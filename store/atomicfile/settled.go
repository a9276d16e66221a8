package atomicfile

import "time"

// A file system records the time of a change only so precisely. Coarse ones, such as FAT, count in
// two seconds, and their times have no fraction of a second. Fine ones, such as ext4, XFS, APFS and
// NTFS, count in ten milliseconds or less. The limits leave a margin.
const (
	coarseTime = 3 * time.Second
	fineTime   = 100 * time.Millisecond
)

// Settled reports whether each change of a file after now gets another modification time than
// modified. If not, a cache that compares modification times may miss a change.
func Settled(modified, now time.Time) bool {
	age := now.Sub(modified).Abs()
	return age > coarseTime || age > fineTime && modified.Nanosecond() != 0
}
