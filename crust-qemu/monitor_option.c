/* SPDX-License-Identifier: Apache-2.0 */
/* monitor_option.c - reads QEMU's arguments; decides about the monitor. */
#include "crust-qemu/monitor_option.h"

#include <stdio.h>
#include <string.h>

static bool is_name_option(const char *argument)
{
    return strcmp(argument, "-name") == 0 || strcmp(argument, "--name") == 0;
}

/* The id becomes a file's name and part of a QEMU option, where a comma ends it. */
static bool is_id_character(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
}

/* The length of the sandbox's id at the begin of `value`, the prefix skipped; 0: it names none. */
static size_t find_id(const char *value, const char **ret_id)
{
    static const char prefix[] = "sandbox-";
    size_t length = 0;

    if (strncmp(value, prefix, strlen(prefix)) != 0)
        return 0;
    *ret_id = value + strlen(prefix);
    while (is_id_character((*ret_id)[length]))
        length++;
    if ((*ret_id)[length] != '\0' && (*ret_id)[length] != ',')
        return 0;
    return **ret_id == '.' ? 0 : length;
}

/* Of the one -name option. 0: there is none, or more than one. */
static size_t find_sandbox(const char *const *arguments, const char **ret_id)
{
    size_t length = 0;
    unsigned names = 0;

    for (; *arguments; arguments++)
        if (is_name_option(*arguments) && arguments[1]) {
            length = find_id(*++arguments, ret_id);
            names++;
        }
    return names == 1 ? length : 0;
}

static bool mention(const char *const *arguments, const char *path)
{
    for (; *arguments; arguments++)
        if (strstr(*arguments, path))
            return true;
    return false;
}

/* The measurement that attests such a guest covers QEMU's command line. */
static bool is_confidential(const char *const *arguments)
{
    return mention(arguments, "confidential-guest-support=") ||
           mention(arguments, "memory-encryption=");
}

bool monitor_option(const char *const *arguments, const char *directory, struct monitor_option *ret)
{
    const char *id = NULL;
    size_t length = find_sandbox(arguments, &id);

    if (length == 0 || strlen(directory) + 1 + length + strlen(".sock") >= sizeof(ret->path))
        return false;
    (void)snprintf(ret->path, sizeof(ret->path), "%s/%.*s.sock", directory, (int)length, id);
    (void)snprintf(ret->value, sizeof(ret->value), "unix:%s,server=on,wait=off", ret->path);
    return !mention(arguments, ret->path) && !is_confidential(arguments);
}
