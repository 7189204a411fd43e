/* SPDX-License-Identifier: Apache-2.0 */
/* recording.c - see recording.h: open, write, pwrite, ftruncate, fsync, fdatasync, rename and
 * unlink. */
#include "tests/power-loss/recording.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"

struct file {
    dev_t device;
    ino_t inode;
    struct content first; /* at the start */
};

static struct {
    char directory[4096];
    size_t directory_length;
    dev_t device;
    ino_t inode;
    bool is_on;

    struct operation *operation;
    size_t count, room;
    struct file file[FILES];
    unsigned files;
    struct names first_names;
} recording;

/* The name within the directory, NULL: it is another one's, or the wal-index. */
static const char *recorded_name(const char *path)
{
    const char *name = path + recording.directory_length + 1;
    size_t length = strlen(path);

    if (!recording.is_on || length <= recording.directory_length + 1 ||
        strncmp(path, recording.directory, recording.directory_length) != 0 ||
        path[recording.directory_length] != '/' || strchr(name, '/'))
        return NULL;
    if (length >= 4 && strcmp(path + length - 4, "-shm") == 0)
        return NULL;
    must(strlen(name) < NAME_BYTES, "a long name");
    return name;
}

/* The newest one: the number of an inode that is gone is given again. */
static struct file *find_file(const struct stat *status)
{
    for (unsigned i = recording.files; i > 0; i--)
        if (recording.file[i - 1].device == status->st_dev &&
            recording.file[i - 1].inode == status->st_ino)
            return &recording.file[i - 1];
    return NULL;
}

static struct file *recorded_file(int fd)
{
    struct stat status;

    return recording.is_on && fstat(fd, &status) == 0 ? find_file(&status) : NULL;
}

static bool is_recorded_directory(int fd)
{
    struct stat status;

    return recording.is_on && fstat(fd, &status) == 0 && status.st_dev == recording.device &&
           status.st_ino == recording.inode;
}

static unsigned add_file(const struct stat *status)
{
    must(recording.files < FILES, "too many files");
    recording.file[recording.files] =
        (struct file){.device = status->st_dev, .inode = status->st_ino};
    return recording.files++;
}

static struct operation *add_operation(enum kind kind)
{
    struct operation *operation;

    if (recording.count == recording.room) {
        recording.room = recording.room ? 2 * recording.room : 4096;
        recording.operation = reallocarray(recording.operation, recording.room, sizeof(*operation));
        must(recording.operation, "memory");
    }
    operation = &recording.operation[recording.count++];
    *operation = (struct operation){.kind = kind};
    return operation;
}

static void note_of_file(const struct file *file, enum kind kind, size_t offset, const void *bytes,
                         size_t length)
{
    struct operation *operation = add_operation(kind);

    operation->file = (unsigned)(file - recording.file);
    operation->offset = offset;
    operation->length = length;
    if (!bytes || !length)
        return;
    operation->bytes = malloc(length);
    must(operation->bytes, "memory");
    memcpy(operation->bytes, bytes, length);
}

static void note_of_name(enum kind kind, unsigned file, const char *name, const char *to)
{
    struct operation *operation = add_operation(kind);

    operation->file = file;
    (void)snprintf(operation->name, sizeof(operation->name), "%s", name);
    (void)snprintf(operation->to, sizeof(operation->to), "%s", to);
}

/* ---- between the program and libc ---------------------------------------------------------- */

#define REAL(name)                                                                                 \
    do {                                                                                           \
        if (!real)                                                                                 \
            *(void **)&real = dlsym(RTLD_NEXT, name);                                              \
    } while (0)

int recorded_open(const char *path, int flags, ...) __asm__("open64");
int recorded_open(const char *path, int flags, ...)
{
    static int (*real)(const char *, int, ...);
    const char *name = recorded_name(path);
    struct stat status;
    mode_t mode = 0;
    bool is_new;
    va_list list;
    int fd;

    REAL("open64");
    va_start(list, flags);
    if (flags & O_CREAT)
        mode = va_arg(list, mode_t);
    va_end(list);
    is_new = name && (flags & O_CREAT) && access(path, F_OK) < 0;
    fd = real(path, flags, mode);
    if (is_new && fd >= 0 && fstat(fd, &status) == 0)
        note_of_name(LINK, add_file(&status), name, "");
    return fd;
}

ssize_t recorded_pwrite(int fd, const void *bytes, size_t length, off_t offset) __asm__("pwrite64");
ssize_t recorded_pwrite(int fd, const void *bytes, size_t length, off_t offset)
{
    static ssize_t (*real)(int, const void *, size_t, off_t);
    const struct file *file = recorded_file(fd);
    ssize_t written;

    REAL("pwrite64");
    written = real(fd, bytes, length, offset);
    if (file && written > 0)
        note_of_file(file, WRITE, (size_t)offset, bytes, (size_t)written);
    return written;
}

ssize_t recorded_write(int fd, const void *bytes, size_t length) __asm__("write");
ssize_t recorded_write(int fd, const void *bytes, size_t length)
{
    static ssize_t (*real)(int, const void *, size_t);
    const struct file *file = recorded_file(fd);
    off_t offset = file ? lseek(fd, 0, SEEK_CUR) : 0;
    ssize_t written;

    REAL("write");
    written = real(fd, bytes, length);
    if (file && written > 0)
        note_of_file(file, WRITE, (size_t)offset, bytes, (size_t)written);
    return written;
}

int recorded_ftruncate(int fd, off_t length) __asm__("ftruncate64");
int recorded_ftruncate(int fd, off_t length)
{
    static int (*real)(int, off_t);
    const struct file *file = recorded_file(fd);
    int r;

    REAL("ftruncate64");
    r = real(fd, length);
    if (file && r == 0)
        note_of_file(file, TRUNCATE, 0, NULL, (size_t)length);
    return r;
}

/* Images need no flushes either. */
static bool note_flush(int fd)
{
    const struct file *file = recorded_file(fd);

    if (file)
        note_of_file(file, FLUSH, 0, NULL, 0);
    else if (is_recorded_directory(fd))
        (void)add_operation(FLUSH_NAMES);
    return recording.directory_length > 0;
}

int recorded_fsync(int fd) __asm__("fsync");
int recorded_fsync(int fd)
{
    static int (*real)(int);

    REAL("fsync");
    return note_flush(fd) ? 0 : real(fd);
}

int recorded_fdatasync(int fd) __asm__("fdatasync");
int recorded_fdatasync(int fd)
{
    static int (*real)(int);

    REAL("fdatasync");
    return note_flush(fd) ? 0 : real(fd);
}

int recorded_unlink(const char *path) __asm__("unlink");
int recorded_unlink(const char *path)
{
    static int (*real)(const char *);
    const char *name = recorded_name(path);
    int r;

    REAL("unlink");
    r = real(path);
    if (name && r == 0)
        note_of_name(UNLINK, 0, name, "");
    return r;
}

int recorded_rename(const char *from, const char *to) __asm__("rename");
int recorded_rename(const char *from, const char *to)
{
    static int (*real)(const char *, const char *);
    const char *name = recorded_name(from), *to_name = recorded_name(to);
    int r;

    REAL("rename");
    r = real(from, to);
    if (name && r == 0) {
        must(to_name, "renamed out of the directory");
        note_of_name(RENAME, 0, name, to_name);
    }
    return r;
}

/* ---- beginning and end --------------------------------------------------------------------- */

static void read_content(int fd, struct content *content)
{
    struct stat status;

    must(fstat(fd, &status) == 0, "fstat");
    content_resize(content, (size_t)status.st_size);
    must(pread(fd, content->bytes, content->length, 0) == (ssize_t)content->length, "pread");
}

static void take_first(const char *name)
{
    char path[sizeof(recording.directory) + NAME_BYTES];
    cleanup(fd_closep) int fd = -1;
    struct stat status;
    unsigned file;

    (void)snprintf(path, sizeof(path), "%s/%s", recording.directory, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    must(fd >= 0 && fstat(fd, &status) == 0, path);
    file = add_file(&status);
    read_content(fd, &recording.file[file].first);
    names_set(&recording.first_names, name, file);
}

int recording_start(const char *directory)
{
    cleanup(dir_closep) DIR *names = opendir(directory);
    struct stat status;

    if (!names || stat(directory, &status) < 0)
        return -errno;
    recording_forget();
    (void)snprintf(recording.directory, sizeof(recording.directory), "%s", directory);
    recording.directory_length = strlen(directory);
    recording.device = status.st_dev;
    recording.inode = status.st_ino;
    for (struct dirent *entry; (entry = readdir(names));) {
        size_t length = strlen(entry->d_name);

        if (entry->d_name[0] != '.' &&
            (length < 4 || strcmp(entry->d_name + length - 4, "-shm") != 0))
            take_first(entry->d_name);
    }
    recording.is_on = true;
    return 0;
}

void recording_stop(void)
{
    recording.is_on = false;
}

bool recording_is_on(void)
{
    return recording.is_on;
}

void recording_forget(void)
{
    for (size_t i = 0; i < recording.count; i++)
        free(recording.operation[i].bytes);
    for (unsigned i = 0; i < recording.files; i++)
        free(recording.file[i].first.bytes);
    free(recording.operation);
    memset(&recording, 0, sizeof(recording));
}

size_t recording_count(void)
{
    return recording.count;
}

const struct operation *recording_at(size_t index)
{
    return &recording.operation[index];
}

unsigned recording_files(void)
{
    return recording.files;
}

const struct content *recording_first_content(unsigned file)
{
    return &recording.file[file].first;
}

const struct names *recording_first_names(void)
{
    return &recording.first_names;
}
