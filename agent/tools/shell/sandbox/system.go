package sandbox

// systemFolders are the folders with programs and libraries.
var systemFolders = []string{
	"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
}

// systemFiles are the settings that programs need. Other files in /etc may be secret.
var systemFiles = []string{
	"/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d",
	"/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/ca-certificates", "/etc/pki/tls/certs",
	"/etc/pki/ca-trust/extracted", "/etc/crypto-policies", "/etc/passwd", "/etc/group",
	"/etc/nsswitch.conf", "/etc/host.conf", "/etc/hosts", "/etc/gai.conf", "/etc/protocols",
	"/etc/services", "/etc/localtime", "/etc/timezone", "/etc/locale.alias", "/etc/locale.conf",
	"/etc/mime.types", "/etc/magic", "/etc/os-release", "/etc/debian_version", "/etc/shells",
	"/etc/profile", "/etc/bash.bashrc", "/etc/inputrc", "/etc/terminfo", "/etc/fonts",
	"/etc/python3", "/etc/ImageMagick-6", "/etc/ImageMagick-7", "/etc/papersize",
}

// networkFiles are also needed to resolve host names.
var networkFiles = []string{"/etc/resolv.conf"}

// devices are the harmless devices.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}

// kernelFiles describe the machine. They say nothing about processes.
var kernelFiles = []string{
	"/proc/cpuinfo", "/proc/filesystems", "/proc/loadavg", "/proc/meminfo", "/proc/stat",
	"/proc/uptime", "/proc/version",
}
