package ops

import "golang.org/x/sys/windows"

func diskSpace(dir string) (s Space, err error) {
	name, err := windows.UTF16PtrFromString(dir)
	if err == nil {
		err = windows.GetDiskFreeSpaceEx(name, &s.Free, &s.Total, nil)
	}
	return s, err
}
