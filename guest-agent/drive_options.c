/* SPDX-License-Identifier: Apache-2.0 */
/* drive_options.c - two tables: attributes of mounts, and parameters of file systems. */
#include "guest-agent/guest_drive.h"

#include <linux/mount.h>
#include <string.h>

#include "lib/cleanup.h"

enum { EXT4 = 1, XFS = 2, BTRFS = 4, ALL = EXT4 | XFS | BTRFS };

static const struct {
    const char *name;
    unsigned bit;
} types[] = {{"ext4", EXT4}, {"xfs", XFS}, {"btrfs", BTRFS}};

static const struct {
    const char *name;
    uint64_t attribute;
} attributes[] = {
    {"nodev", MOUNT_ATTR_NODEV},           {"nosuid", MOUNT_ATTR_NOSUID},
    {"noexec", MOUNT_ATTR_NOEXEC},         {"noatime", MOUNT_ATTR_NOATIME},
    {"nodiratime", MOUNT_ATTR_NODIRATIME}, {"strictatime", MOUNT_ATTR_STRICTATIME},
    {"relatime", MOUNT_ATTR_RELATIME},
};

enum value {
    FLAG,
    NUMBER,
    WORD,  /* one of `words` */
    PATH,  /* of a subvolume */
    LABEL, /* of SELinux, perhaps in quotes; only where the guest enforces it */
};

static const struct parameter {
    const char *name;
    unsigned types;
    enum value value;
    const char *words; /* each between blanks */
    bool needs_read_only;
} parameters[] = {
    {"context", ALL, LABEL, NULL, false},
    {"sync", ALL, FLAG, NULL, false},
    {"dirsync", ALL, FLAG, NULL, false},
    {"lazytime", ALL, FLAG, NULL, false},
    {"discard", ALL, FLAG, NULL, false},
    {"nodiscard", ALL, FLAG, NULL, false},
    {"acl", EXT4 | BTRFS, FLAG, NULL, false},
    {"noacl", EXT4 | BTRFS, FLAG, NULL, false},
    {"commit", EXT4 | BTRFS, NUMBER, NULL, false},
    {"data", EXT4, WORD, " ordered journal writeback ", false},
    {"errors", EXT4, WORD, " remount-ro continue ", false},
    {"delalloc", EXT4, FLAG, NULL, false},
    {"nodelalloc", EXT4, FLAG, NULL, false},
    {"stripe", EXT4, NUMBER, NULL, false},
    {"noload", EXT4, FLAG, NULL, true},
    {"norecovery", EXT4 | XFS, FLAG, NULL, true},
    {"nouuid", XFS, FLAG, NULL, false},
    {"inode64", XFS, FLAG, NULL, false},
    {"largeio", XFS, FLAG, NULL, false},
    {"logbufs", XFS, NUMBER, NULL, false},
    {"noquota", XFS, FLAG, NULL, false},
    {"wsync", XFS, FLAG, NULL, false},
    {"compress", BTRFS, WORD, " zstd lzo zlib no ", false},
    {"compress-force", BTRFS, WORD, " zstd lzo zlib ", false},
    {"ssd", BTRFS, FLAG, NULL, false},
    {"nossd", BTRFS, FLAG, NULL, false},
    {"subvol", BTRFS, PATH, NULL, false},
    {"subvolid", BTRFS, NUMBER, NULL, false},
};

static bool is_word(const char *value, const char *words)
{
    size_t length = strlen(value);

    if (!length || strchr(value, ' '))
        return false;
    for (const char *at = strstr(words, value); at; at = strstr(at + 1, value)) {
        if (at[-1] == ' ' && at[length] == ' ')
            return true;
    }
    return false;
}

/* USER:ROLE:TYPE:LEVEL; a level has commas between its categories. */
static bool is_label(const char *value)
{
    size_t quotes = value[0] == '"', length = strlen(value);

    if (quotes && (length < 2 || value[length - 1] != '"'))
        return false;
    length -= 2 * quotes;
    return length > 0 &&
           strspn(value + quotes, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789_.:,-") == length;
}

static bool has_value(const struct parameter *parameter, const char *value)
{
    size_t length = value ? strspn(value, "0123456789") : 0;

    switch (value ? parameter->value : FLAG) {
    case FLAG:
        return !value && parameter->value == FLAG;
    case NUMBER:
        return length > 0 && length <= 10 && !value[length];
    case WORD:
        return is_word(value, parameter->words);
    case PATH: /* the kernel resolves it inside the file system */
        return *value && !strchr(value, ',') && !strstr(value, "..");
    case LABEL:
        return is_label(value);
    }
    return false;
}

static const struct parameter *find_parameter(unsigned type, const char *name, size_t length)
{
    for (size_t i = 0; i < array_length(parameters); i++) {
        if ((parameters[i].types & type) && strlen(parameters[i].name) == length &&
            strncmp(parameters[i].name, name, length) == 0)
            return &parameters[i];
    }
    return NULL;
}

/* Takes the option. NULL, or what is wrong with it. */
static const char *take_parameter(const char *option, unsigned type, bool enforces_labels,
                                  bool read_only, struct drive_options *options)
{
    const char *equals = strchr(option, '=');
    size_t length = equals ? (size_t)(equals - option) : strlen(option);
    const struct parameter *parameter = find_parameter(type, option, length);
    struct drive_parameter *added = &options->parameters[options->count];

    if (!parameter)
        return "is not among those that are allowed for this file system";
    if (!has_value(parameter, equals ? equals + 1 : NULL))
        return "has a value that it cannot have";
    if (parameter->needs_read_only && !read_only)
        return "is only allowed for a read-only drive";
    if (parameter->value == LABEL && !enforces_labels)
        return "is an SELinux label, and this guest does not enforce SELinux";
    *added = (struct drive_parameter){0};
    strcpy(added->name, parameter->name);
    if (equals) { /* mount(2) removes the quotes of a label; fsconfig(2) does not */
        size_t quotes = parameter->value == LABEL && equals[1] == '"';

        memcpy(added->value, equals + 1 + quotes, strlen(equals + 1) - 2 * quotes);
    }
    options->count++;
    return NULL;
}

/* The three modes of access times are one field of the attributes, in which relatime is 0. */
static const char *take_option(const char *option, unsigned type, bool enforces_labels,
                               bool read_only, struct drive_options *options, bool *has_atime)
{
    if (strcmp(option, "ro") == 0 || strcmp(option, "rw") == 0)
        return (option[1] == 'o') == read_only ? NULL : "contradicts read_only";
    for (size_t i = 0; i < array_length(attributes); i++) {
        bool is_atime = attributes[i].attribute == MOUNT_ATTR_RELATIME ||
                        (attributes[i].attribute & MOUNT_ATTR__ATIME);

        if (strcmp(attributes[i].name, option) != 0)
            continue;
        if (is_atime && *has_atime)
            return "contradicts one of those before it";
        *has_atime |= is_atime;
        options->attributes |= attributes[i].attribute;
        return NULL;
    }
    return take_parameter(option, type, enforces_labels, read_only, options);
}

enum status_code drive_options_take(const struct drive_mount_request *request, bool enforces_labels,
                                    struct drive_options *ret_options, struct error *error)
{
    struct drive_options options = {.attributes = MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID};
    bool has_atime = false;
    unsigned type = 0;

    for (size_t i = 0; i < array_length(types); i++) {
        if (strcmp(types[i].name, request->filesystem_type) == 0)
            type = types[i].bit;
    }
    if (!type)
        return drive_refuse(error, STATUS_INVALID_ARGUMENT,
                            "filesystem_type is none of ext4, xfs and btrfs");
    if (request->read_only)
        options.attributes |= MOUNT_ATTR_RDONLY;
    for (size_t i = 0; i < request->option_count; i++) {
        const char *wrong = take_option(request->options[i], type, enforces_labels,
                                        request->read_only, &options, &has_atime);

        if (wrong)
            return drive_refuse(error, STATUS_INVALID_ARGUMENT, "options[%zu] %s", i, wrong);
    }
    *ret_options = options;
    return STATUS_OK;
}
