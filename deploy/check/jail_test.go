package check

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// jailWord, as the first argument of this test's binary, has it become a program in
// a container's place: jailWord root uid:gid program arguments.
const jailWord = "run-in-jail"

// noMounts is what enterJail says where it may not mount.
const noMounts = "jail: nothing may be mounted here; the root is read-only by its owner and modes"

// prSetNoNewPrivs is PR_SET_NO_NEW_PRIVS of prctl(2).
const prSetNoNewPrivs = 38

// enterJail makes root the root of this process, read-only, gives up root's rights
// for good and runs the program. It returns only if something of that fails.
func enterJail(args []string) error {
	if len(args) < 3 {
		return errors.New("jail: root, user and program are asked for")
	}
	root, user, program := args[0], args[1], args[2:]
	uid, gid, err := parseUser(user)
	if err != nil {
		return err
	}
	runtime.LockOSThread() // name spaces of mounts belong to threads
	if err := bindReadOnly(root); errors.Is(err, syscall.EPERM) {
		fmt.Fprintln(os.Stderr, noMounts)
	} else if err != nil {
		return fmt.Errorf("jail: %w", err)
	}
	steps := []func() error{
		func() error { return syscall.Chroot(root) },
		func() error { return syscall.Chdir("/") },
		func() error { return syscall.Setgroups(nil) },
		func() error { return syscall.Setgid(gid) },
		func() error { return syscall.Setuid(uid) },
		func() error {
			_, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, prSetNoNewPrivs, 1, 0, 0, 0, 0)
			if errno != 0 {
				return errno
			}
			return nil
		},
		func() error { return syscall.Exec(program[0], program, os.Environ()) },
	}
	for i, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("jail: step %d: %w", i, err)
		}
	}
	return nil
}

// bindReadOnly puts root on itself, read-only, where only this process sees it.
func bindReadOnly(root string) error {
	if err := syscall.Unshare(syscall.CLONE_NEWNS); err != nil {
		return err
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := syscall.Mount(root, root, "", syscall.MS_BIND, ""); err != nil {
		return err
	}
	return syscall.Mount("", root, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, "")
}

func parseUser(user string) (uid, gid int, err error) {
	u, g, _ := strings.Cut(user, ":")
	if uid, err = strconv.Atoi(u); err == nil {
		gid, err = strconv.Atoi(g)
	}
	if err == nil && (uid == 0 || gid == 0) {
		err = errors.New("root")
	}
	if err != nil {
		err = fmt.Errorf("the user %q is not uid:gid of somebody but root: %w", user, err)
	}
	return uid, gid, err
}
