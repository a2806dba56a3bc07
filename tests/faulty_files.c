/* Makes calls on files fail, or ends the process in them, so that tests see what a bad disk does.
 *
 *   cc -shared -fPIC -o faulty_files.so faulty_files.c -ldl
 *   LD_PRELOAD=./faulty_files.so FAULTY_PATH=.safetensors FAULTY_CALLS=open,read FAULTY_ERRNO=5 PROGRAM
 *
 * FAULTY_PATH   part of the path of the files that are meant; without it nothing fails
 * FAULTY_CALLS  which calls: open (for reading only), read, mmap, list (opendir), rename, renamed (once it is done)
 * FAULTY_ERRNO  the error's number, or KILL to end the process with SIGKILL
 * FAULTY_EVERY  of these calls every Nth one fails; every one without it. Each process counts for itself, from 0
 * FAULTY_SPREAD if it is set, each process counts from its process id, so that not all processes fail at the same call
 * FAULTY_LOG    a file that gets a byte for each call that failed
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static atomic_ulong calls;

/* Whether `call` is one of the comma-separated words. */
static int is_listed(const char *call)
{
    const char *words = getenv("FAULTY_CALLS");
    size_t length = strlen(call);
    while (words && *words) {
        size_t word = strcspn(words, ",");
        if (word == length && strncmp(words, call, length) == 0)
            return 1;
        words += word;
        words += *words == ',';
    }
    return 0;
}

/* Whether this call is to fail; errno is set then. */
static int fails(const char *call, const char *path)
{
    const char *part = getenv("FAULTY_PATH"), *error = getenv("FAULTY_ERRNO"), *every = getenv("FAULTY_EVERY");
    if (!part || !error || !path || !strstr(path, part) || !is_listed(call))
        return 0;
    unsigned long step = every ? strtoul(every, NULL, 10) : 1, start = getenv("FAULTY_SPREAD") ? getpid() : 0;
    if ((start + atomic_fetch_add(&calls, 1) + 1) % (step ? step : 1) != 0)
        return 0;
    const char *log = getenv("FAULTY_LOG");
    int file = log ? open(log, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
    if (file >= 0 && (write(file, "x", 1) != 1 || close(file) != 0))
        abort();
    if (strcmp(error, "KILL") == 0)
        raise(SIGKILL);
    errno = atoi(error);
    return 1;
}

static int fails_on(const char *call, int fd)
{
    char link[64], path[PATH_MAX];
    int saved = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = saved;
    if (length < 0)
        return 0;
    path[length] = 0;
    return fails(call, path);
}

#define NEXT(name) __typeof__(&name) next = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#define OPEN(name)                                                          \
    int name(const char *path, int flags, ...)                              \
    {                                                                       \
        NEXT(name);                                                         \
        va_list more;                                                       \
        va_start(more, flags);                                              \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more);                                                       \
        if ((flags & O_ACCMODE) == O_RDONLY && fails("open", path))         \
            return -1;                                                      \
        return next(path, flags, mode);                                     \
    }

#define OPENAT(name)                                                        \
    int name(int folder, const char *path, int flags, ...)                  \
    {                                                                       \
        NEXT(name);                                                         \
        va_list more;                                                       \
        va_start(more, flags);                                              \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more);                                                       \
        if ((flags & O_ACCMODE) == O_RDONLY && fails("open", path))         \
            return -1;                                                      \
        return next(folder, path, flags, mode);                             \
    }

#define PREAD(name, offset_t)                                               \
    ssize_t name(int fd, void *bytes, size_t count, offset_t offset)        \
    {                                                                       \
        NEXT(name);                                                         \
        return fails_on("read", fd) ? -1 : next(fd, bytes, count, offset);  \
    }

#define MMAP(name, offset_t)                                                          \
    void *name(void *start, size_t length, int access, int flags, int fd, offset_t at) \
    {                                                                                 \
        NEXT(name);                                                                   \
        if (!(flags & MAP_ANONYMOUS) && fails_on("mmap", fd))                         \
            return MAP_FAILED;                                                        \
        return next(start, length, access, flags, fd, at);                            \
    }

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
PREAD(pread, off_t)
PREAD(pread64, off64_t)
MMAP(mmap, off_t)
MMAP(mmap64, off64_t)

ssize_t read(int fd, void *bytes, size_t count)
{
    NEXT(read);
    return fails_on("read", fd) ? -1 : next(fd, bytes, count);
}

ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t count, unsigned flags)
{
    NEXT(copy_file_range);
    return fails_on("read", from) ? -1 : next(from, from_at, to, to_at, count, flags);
}

DIR *opendir(const char *path)
{
    NEXT(opendir);
    return fails("list", path) ? NULL : next(path);
}

int rename(const char *from, const char *to)
{
    NEXT(rename);
    if (fails("rename", to))
        return -1;
    int result = next(from, to);
    return result == 0 && fails("renamed", to) ? -1 : result;
}
