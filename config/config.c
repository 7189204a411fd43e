/* SPDX-License-Identifier: Apache-2.0 */
/* config.c - from files to a struct config, all or nothing.
 *
 * The main file comes first, then those of its drop-in directory in the order of their names: a key
 * that a later file gives replaces the value of an earlier one.
 *
 * inih splits lines into section, key and value. The reader below stands between it and the file,
 * because inih silently cuts a long line and ends a line at a NUL: both are refused here, as is a
 * file larger than FILE_BYTES. The reader also removes white space at the start of lines, so that
 * inih never takes an indented line for the continuation of the one above.
 *
 * Everything is read into a copy that starts from the defaults; the caller's configuration is only
 * written when all of the file was right. Only the first error is reported.
 */
#include "config/config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/keys.h"
#include "lib/cleanup.h"
#include "lib/path.h"

enum {
    FILE_BYTES = 64 * 1024,
    OPEN_FLAGS = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
    DROP_INS = 64
};

struct reading {
    FILE *stream;
    const char *name;
    struct error *error;
    unsigned line; /* the one that was read last */
    size_t bytes;
    unsigned failed_line;           /* 0: nothing failed */
    unsigned seen[CONFIG_KEYS_MAX]; /* the line that gave a key, 0 for none */
    struct config config;
};

void config_defaults(struct config *ret_config)
{
    memset(ret_config, 0, sizeof(*ret_config));
    /* That every default parses is tested. */
    for (size_t i = 0; i < config_key_count; i++)
        (void)config_value_parse(&config_keys[i], config_keys[i].default_value, ret_config, NULL);
}

static void fail(struct reading *reading, const char *what)
{
    reading->failed_line = reading->line;
    (void)error_set(reading->error, -EINVAL, "%s:%u: %s", reading->name, reading->line, what);
}

/* A character of the file, or EOF at its end and after a failure. */
static int next_character(struct reading *reading)
{
    int character = getc(reading->stream);

    if (character == EOF)
        return EOF;
    if (++reading->bytes > FILE_BYTES) {
        fail(reading, "the file is longer than 64 KiB");
        return EOF;
    }
    if (character == '\0') {
        fail(reading, "a NUL byte");
        return EOF;
    }
    return character;
}

/* Like fgets(3), for inih: `size` is inih's own buffer. */
static char *read_line(char *text, int size, void *context)
{
    struct reading *reading = context;
    int length = 0, character = EOF;

    reading->line++;
    while (!reading->failed_line && (character = next_character(reading)) != EOF) {
        if (length == 0 && (character == ' ' || character == '\t'))
            continue;
        if (length == size - 1) {
            fail(reading, "the line is too long");
            break;
        }
        text[length++] = (char)character;
        if (character == '\n')
            break;
    }
    text[length] = '\0';
    return reading->failed_line || (character == EOF && !length) ? NULL : text;
}

/* inih's handler. Always returns 1: a failure is noted in `reading`. */
static int on_value(void *context, const char *section, const char *name, const char *value)
{
    struct reading *reading = context;
    struct error *error = reading->error;
    const int index = config_key_find(section, name);
    int r;

    if (reading->failed_line)
        return 1;
    if (!*section)
        r = error_set(error, -EINVAL, "%s: stands before the first [section]", name);
    else if (config_key_find(section, NULL) < 0)
        r = error_set(error, -EINVAL, "[%s]: unknown section", section);
    else if (index < 0)
        r = error_set(error, -EINVAL, "%s.%s: unknown key", section, name);
    else if (reading->seen[index])
        r = error_set(error, -EINVAL, "%s.%s: was given in line %u already", section, name,
                      reading->seen[index]);
    else {
        r = config_value_parse(&config_keys[index], value, &reading->config, error);
        if (r < 0)
            (void)error_prefix(error, "%s.%s: ", section, name);
        reading->seen[index] = reading->line;
    }
    if (r < 0) {
        reading->failed_line = reading->line;
        (void)error_prefix(error, "%s:%u: ", reading->name, reading->line);
    }
    return 1;
}

int config_read(FILE *stream, const char *name, struct config *config, struct error *error)
{
    struct reading reading = {.stream = stream, .name = name, .error = error, .config = *config};
    int syntax_line;

    ini_max_line =
        CONFIG_LINE_BYTES; /* a variable of Debian's build; the header's macro says 200 */
    syntax_line = ini_parse_stream(read_line, &reading, on_value, &reading);
    if (ferror(stream))
        return error_set(error, -EIO, "%s: cannot read", name);
    if (syntax_line < 0)
        return error_set(error, -ENOMEM, "%s: out of memory", name);
    if (syntax_line > 0 && (!reading.failed_line || (unsigned)syntax_line < reading.failed_line))
        return error_set(error, -EINVAL,
                         "%s:%d: neither a [section], nor key = value, nor a comment", name,
                         syntax_line);
    if (reading.failed_line)
        return -EINVAL;
    *config = reading.config;
    return 0;
}

/* A pipe is read to its end. A pipe without a writer would read like an empty file, which is a
 * configuration of defaults. */
static int check_source(FILE *stream, const char *name, struct error *error)
{
    struct stat status;
    int byte;

    if (fstat(fileno(stream), &status) < 0)
        return error_set_errno(error, -errno, "%s", name);
    if (!S_ISFIFO(status.st_mode))
        return 0;
    (void)fcntl(fileno(stream), F_SETFL, O_RDONLY);
    byte = getc(stream);
    if (byte == EOF)
        return error_set(error, -EINVAL, "%s: nothing was written into this pipe", name);
    (void)ungetc(byte, stream);
    return 0;
}

/* Where a program's configuration is: in a file that was named, as the path stands, or below the
 * host's root. */
struct place {
    bool in_root;
    int root;
    const char *root_name; /* "" for "/" */
};

/* A descriptor for `file`, or -errno; ret_name is its name in errors. */
static int open_file(const struct place *place, const char *file, char ret_name[static PATH_MAX])
{
    cleanup(fd_closep) int handle = -1;
    char link[32];
    int fd, r;

    (void)snprintf(ret_name, PATH_MAX, "%s%s", place->in_root ? place->root_name : "", file);
    if (place->in_root) {
        r = path_open_in_root(place->root, file, &handle);
        if (r != 0)
            return r == PATH_MISSING ? -ENOENT : r;
        (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", handle);
        file = link;
    }
    fd = open(file, OPEN_FLAGS);
    return fd < 0 ? -errno : fd;
}

static int load_file(const struct place *place, const char *file, struct config *config,
                     struct error *error)
{
    char name[PATH_MAX];
    int fd = open_file(place, file, name), r;
    FILE *stream;

    if (fd < 0)
        return error_set_errno(error, fd, "%s", name);
    stream = fdopen(fd, "r");
    if (!stream) {
        fd_close(fd);
        return error_set_errno(error, -errno, "%s", name);
    }
    r = check_source(stream, name, error);
    if (r == 0)
        r = config_read(stream, name, config, error);
    (void)fclose(stream);
    return r;
}

/* The names end with .conf; editors' and packages' leftovers do not, and a ConfigMap's own begin
 * with a dot. */
static int is_drop_in(const struct dirent *entry)
{
    const char *end = strrchr(entry->d_name, '.');

    return entry->d_name[0] != '.' && end && strcmp(end, ".conf") == 0;
}

static int compare_names(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int load_drop_ins(const struct place *place, const char *file, struct config *config,
                         struct error *error)
{
    char directory[PATH_MAX - NAME_MAX - 1], name[PATH_MAX];
    struct dirent **entries;
    int fd, count, r = 0, s;

    if (snprintf(directory, sizeof(directory), "%s.d", file) >= (int)sizeof(directory))
        return error_set(error, -ENAMETOOLONG, "%s.d: the path is too long", file);
    fd = open_file(place, directory, name);
    if (fd < 0)
        return path_is_missing(fd) ? 0 : error_set_errno(error, fd, "%s", name);
    count = scandirat(fd, ".", &entries, is_drop_in, compare_names);
    fd_close(fd);
    if (count < 0)
        return errno == ENOTDIR ? 0 : error_set_errno(error, -errno, "%s", name);
    if (count > DROP_INS)
        r = error_set(error, -EINVAL, "%s: has %d files, more than %d", name, count, DROP_INS);
    for (int i = 0; i < count; i++) {
        (void)snprintf(name, sizeof(name), "%s/%s", directory, entries[i]->d_name);
        if (count <= DROP_INS) {
            s = load_file(place, name, config, r ? NULL : error);
            r = r ? r : s;
        }
        free(entries[i]);
    }
    free(entries);
    return r;
}

const char *config_root_of_environment(void)
{
    const char *root = getenv(CONFIG_ROOT_VARIABLE);

    return root && *root ? root : "/";
}

const char *config_file_of_environment(void)
{
    const char *file = getenv(CONFIG_FILE_VARIABLE);

    return file && *file ? file : NULL;
}

int config_load(int root, const char *root_name, const char *given, struct config *ret_config,
                struct error *error)
{
    const struct place place = {
        .in_root = !given, .root = root, .root_name = strcmp(root_name, "/") == 0 ? "" : root_name};
    const char *file = given ? given : CONFIG_DEFAULT_FILE;
    int r, s;

    config_defaults(ret_config);
    r = load_file(&place, file, ret_config, error);
    /* The host's own file may be absent, and its drop-ins hold all the same. */
    if (path_is_missing(r) && place.in_root)
        r = 0;
    s = load_drop_ins(&place, file, ret_config, r ? NULL : error);
    return r ? r : s;
}

int config_print(const struct config *config, FILE *stream)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(FILE_BYTES);
    const char *section = NULL;

    for (size_t i = 0; i < config_key_count; i++) {
        const struct config_key *key = &config_keys[i];

        if (!section || strcmp(section, key->section) != 0)
            buffer_append_format(&text, "%s[%s]\n", section ? "\n" : "", key->section);
        section = key->section;
        buffer_append_format(&text, "%s = ", key->name);
        config_value_format(key, config, &text);
        buffer_append_text(&text, "\n");
    }
    if (buffer_error(&text) < 0)
        return buffer_error(&text);
    if (fputs(buffer_text(&text), stream) == EOF || fflush(stream) == EOF)
        return -errno;
    return 0;
}

void config_needs_restart(const struct config *old_config, const struct config *new_config,
                          char *ret_text, size_t size)
{
    size_t used = 0;

    ret_text[0] = '\0';
    for (size_t i = 0; i < config_key_count && used < size; i++) {
        const struct config_key *key = &config_keys[i];
        cleanup(buffer_done) struct buffer before = BUFFER_INIT(FILE_BYTES);
        cleanup(buffer_done) struct buffer after = BUFFER_INIT(FILE_BYTES);

        /* A failure to compare counts as a difference, so that no change goes unreported. */
        if (!key->restart || (config_value_format(key, old_config, &before) == 0 &&
                              config_value_format(key, new_config, &after) == 0 &&
                              strcmp(buffer_text(&before), buffer_text(&after)) == 0))
            continue;
        used += (size_t)snprintf(ret_text + used, size - used, "%s%s.%s", used ? ", " : "",
                                 key->section, key->name);
    }
}

bool config_brings_helpers(const struct config *config)
{
    return config->guest.helper && config->resize.mode == RESIZE_GROW;
}
