// Loaded into a process before libc: counts its calls on the files of a home, and lets one of them fail,
// or be the last thing that the process does; or writes down what would be on a disk without a cache.
//
//   FAULT_HOME   which files count
//   FAULT_CALLS  letters: r(ead) w(rite) s(ync) l(ock) m(ap) o(pen)
//   FAULT_AT     which of these calls it is, from 1
//   FAULT_HOW    the number of an error; `kill`; `tear`: half of what is written, then `kill`
//   FAULT_STAYS  the error is there for all later ones as well
//   FAULT_LOG    instead of all that: where writes, cuts and syncs are written down, in their order

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *home, *calls;
static long at, seen;
static int log_fd = -1, error_number, is_fatal, is_torn, stays;
static volatile int lock;

__attribute__((constructor)) static void begin(void) {
    home = getenv("FAULT_HOME");
    calls = getenv("FAULT_CALLS");
    at = getenv("FAULT_AT") ? atol(getenv("FAULT_AT")) : 0;
    const char *how = getenv("FAULT_HOW");
    is_torn = how && !strcmp(how, "tear");
    is_fatal = is_torn || (how && !strcmp(how, "kill"));
    error_number = how ? atoi(how) : 0;
    stays = getenv("FAULT_STAYS") != NULL;
    if (getenv("FAULT_LOG"))
        log_fd = syscall(SYS_openat, AT_FDCWD, getenv("FAULT_LOG"), O_WRONLY | O_CREAT | O_APPEND, 0600);
}

static int is_ours(const char *path) { return home && !strncmp(path, home, strlen(home)); }

// The path of a descriptor, if it is one of the home.
static const char *path_of(int fd, char *path) {
    char link[64] = "/proc/self/fd/", *end = link + strlen(link);
    char digits[16];
    int count = 0;
    if (fd < 0) return NULL;
    do digits[count++] = '0' + fd % 10; while (fd /= 10);
    while (count) *end++ = digits[--count];
    *end = 0;
    long length = syscall(SYS_readlinkat, AT_FDCWD, link, path, 4095);
    if (length <= 0) return NULL;
    path[length] = 0;
    return is_ours(path) ? path : NULL;
}

// Whether this call is the one.
static int is_it(char kind, const char *path) {
    if (!path || !at || !calls || !strchr(calls, kind)) return 0;
    long number = __sync_add_and_fetch(&seen, 1);
    if (stays ? number < at : number != at) return 0;
    const char said[] = "\nFAULT\n";
    syscall(SYS_write, 2, said, sizeof said - 1);
    if (is_fatal && !(is_torn && kind == 'w')) syscall(SYS_kill, getpid(), SIGKILL);
    return 1;
}

static void note(char kind, const char *path, int64_t offset, int64_t length, const void *data) {
    if (log_fd < 0 || !path) return;
    int64_t head[3] = { (int64_t) strlen(path), offset, length };
    while (__sync_lock_test_and_set(&lock, 1)) {}
    syscall(SYS_write, log_fd, &kind, 1);
    syscall(SYS_write, log_fd, head, sizeof head);
    syscall(SYS_write, log_fd, path, head[0]);
    if (data) syscall(SYS_write, log_fd, data, length);
    __sync_lock_release(&lock);
}

#define FAIL do { errno = error_number; return -1; } while (0)

static ssize_t put(int fd, const void *data, size_t length, off_t offset, int is_placed) {
    char buffer[4096];
    const char *path = path_of(fd, buffer);
    if (is_it('w', path)) {
        if (!is_torn) FAIL;
        syscall(is_placed ? SYS_pwrite64 : SYS_write, fd, data, length / 2, offset);
        syscall(SYS_kill, getpid(), SIGKILL);
    }
    if (path && !is_placed) {
        int is_appending = syscall(SYS_fcntl, fd, F_GETFL) & O_APPEND;
        offset = syscall(SYS_lseek, fd, 0, is_appending ? SEEK_END : SEEK_CUR);
    }
    ssize_t done = is_placed ? syscall(SYS_pwrite64, fd, data, length, offset)
                             : syscall(SYS_write, fd, data, length);
    if (done >= 0) note('w', path, offset, done, data);
    return done;
}

ssize_t write(int fd, const void *data, size_t length) { return put(fd, data, length, 0, 0); }
ssize_t pwrite64(int fd, const void *data, size_t length, off_t at) { return put(fd, data, length, at, 1); }
ssize_t pwrite(int fd, const void *data, size_t length, off_t at) { return put(fd, data, length, at, 1); }

static ssize_t get(int fd, void *data, size_t length, off_t offset) {
    char buffer[4096];
    if (is_it('r', path_of(fd, buffer))) FAIL;
    return syscall(SYS_pread64, fd, data, length, offset);
}

ssize_t pread64(int fd, void *data, size_t length, off_t at) { return get(fd, data, length, at); }
ssize_t pread(int fd, void *data, size_t length, off_t at) { return get(fd, data, length, at); }

static int cut(int fd, off_t length) {
    char buffer[4096];
    const char *path = path_of(fd, buffer);
    if (is_it('w', path)) {
        if (is_torn) syscall(SYS_kill, getpid(), SIGKILL);
        FAIL;
    }
    int done = syscall(SYS_ftruncate, fd, length);
    if (!done) note('t', path, length, 0, NULL);
    return done;
}

int ftruncate(int fd, off_t length) { return cut(fd, length); }
int ftruncate64(int fd, off_t length) { return cut(fd, length); }

static int sync_with(int fd, long number) {
    char buffer[4096];
    const char *path = path_of(fd, buffer);
    if (is_it('s', path)) FAIL;
    int done = syscall(number, fd);
    if (!done) note('s', path, 0, 0, NULL);
    return done;
}

int fsync(int fd) { return sync_with(fd, SYS_fsync); }
int fdatasync(int fd) { return sync_with(fd, SYS_fdatasync); }

static int control(int fd, int command, long argument) {
    char buffer[4096];
    if ((command == F_SETLK || command == F_SETLKW) && is_it('l', path_of(fd, buffer))) FAIL;
    return syscall(SYS_fcntl, fd, command, argument);
}

int fcntl(int fd, int command, ...) {
    va_list rest;
    va_start(rest, command);
    long argument = va_arg(rest, long);
    va_end(rest);
    return control(fd, command, argument);
}

int fcntl64(int fd, int command, ...) {
    va_list rest;
    va_start(rest, command);
    long argument = va_arg(rest, long);
    va_end(rest);
    return control(fd, command, argument);
}

static void *map(void *place, size_t length, int protection, int flags, int fd, off_t offset) {
    char buffer[4096];
    if (fd >= 0 && is_it('m', path_of(fd, buffer))) {
        errno = error_number;
        return MAP_FAILED;
    }
    return (void *) syscall(SYS_mmap, place, length, protection, flags, fd, offset);
}

void *mmap(void *place, size_t length, int protection, int flags, int fd, off_t offset) {
    return map(place, length, protection, flags, fd, offset);
}

void *mmap64(void *place, size_t length, int protection, int flags, int fd, off_t offset) {
    return map(place, length, protection, flags, fd, offset);
}

static int open_with(const char *path, int flags, long mode) {
    if (is_ours(path) && is_it('o', path)) FAIL;
    return syscall(SYS_openat, AT_FDCWD, path, flags | O_LARGEFILE, mode);
}

int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    long mode = va_arg(rest, long);
    va_end(rest);
    return open_with(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    long mode = va_arg(rest, long);
    va_end(rest);
    return open_with(path, flags, mode);
}
