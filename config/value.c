/* SPDX-License-Identifier: Apache-2.0 */
/* value.c - from a value's text to its place in struct config, and back.
 *
 * Reading is strict: a number is digits and nothing else, a name is one of those in the table, a
 * path is absolute. Errors list the values that would be accepted.
 */
#include "config/keys.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/text.h"

static const char *const switch_names[] = {"off", "on", NULL};

/* The index of the text among the choices, or -EINVAL with "must be one of never, observe, grow".
 */
static int parse_choice(const char *const *choices, const char *text, struct error *error)
{
    cleanup(buffer_done) struct buffer names = BUFFER_INIT(ERROR_TEXT_BYTES);

    for (int i = 0; choices[i]; i++) {
        if (strcmp(choices[i], text) == 0)
            return i;
        buffer_append_format(&names, "%s%s", i ? ", " : "", choices[i]);
    }
    return error_set(error, -EINVAL, "must be one of %s", buffer_text(&names));
}

/* Digits only: strtoull(3) alone would take " -1" and "0x10". Ten digits hold every uint32_t. */
static int read_digits(const char *text, uint64_t *ret_number)
{
    size_t length = strspn(text, "0123456789");

    if (!length || text[length] || length > 10)
        return -EINVAL;
    *ret_number = strtoull(text, NULL, 10);
    return 0;
}

static bool has_control_characters(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7F)
            return true;
    return false;
}

static int check_path(const char *text, struct error *error)
{
    size_t length = strlen(text);

    if (text[0] != '/')
        return error_set(error, -EINVAL, "must be an absolute path");
    if (length >= CONFIG_PATH_BYTES)
        return error_set(error, -EINVAL, "a path of %zu bytes, more than %d", length,
                         CONFIG_PATH_BYTES - 1);
    if (has_control_characters(text) || !text_is_utf8(text, length))
        return error_set(error, -EINVAL, "a path with control characters or invalid UTF-8");
    if (strstr(text, " #"))
        return error_set(error, -EINVAL, "a comment after a value starts with ';', not with '#'");
    return 0;
}

/* The next item of a comma-separated list, without the white space around it, cut out of the text
 * in place. NULL at the end. */
static char *next_item(char **cursor)
{
    char *item = strsep(cursor, ",");
    size_t length;

    if (!item)
        return NULL;
    item += strspn(item, " \t");
    length = strlen(item);
    while (length && (item[length - 1] == ' ' || item[length - 1] == '\t'))
        item[--length] = '\0';
    return item;
}

static int check_word(const struct config_key *key, const char *item, struct error *error)
{
    static const char letters[] =
        "/abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    /* Of the names only an annotation's has a slash, and that key takes one name. */
    const char *allowed = key->maximum == 1 ? letters : letters + 1;
    const size_t length = strlen(item);

    if (key->choices && parse_choice(key->choices, item, error) < 0)
        return -EINVAL;
    if (length == 0 || length >= CONFIG_WORD_BYTES || strspn(item, allowed) != length)
        return error_set(error, -EINVAL, "\"%.64s\" is no name", item);
    return 0;
}

const char *config_list_item(const struct config_list *list, unsigned number)
{
    const char *item = list->text;

    while (number--)
        item += strlen(item) + 1;
    return item;
}

bool config_list_add(struct config_list *list, const char *item)
{
    size_t used = (size_t)(config_list_item(list, list->count) - list->text);
    size_t size = strlen(item) + 1;

    if (list->count == CONFIG_LIST_ITEMS || size > sizeof(list->text) - used)
        return false;
    memcpy(list->text + used, item, size);
    list->count++;
    return true;
}

static int append_item(const struct config_key *key, struct config_list *list, const char *item,
                       struct error *error)
{
    const bool is_path = key->type == KEY_PATHS;
    int r = is_path ? check_path(item, error) : check_word(key, item, error);

    if (r < 0)
        return r;
    for (unsigned i = 0; i < list->count; i++)
        if (strcmp(config_list_item(list, i), item) == 0)
            return error_set(error, -EINVAL, "%s is listed twice", item);
    if (!config_list_add(list, item))
        return error_set(error, -EINVAL, "more than %d %s", CONFIG_LIST_ITEMS,
                         is_path ? "paths" : "names");
    return 0;
}

static int parse_list(const struct config_key *key, char *text, struct config_list *list,
                      struct error *error)
{
    char *cursor = *text ? text : NULL;
    int r = 0;

    memset(list, 0, sizeof(*list));
    for (char *item = next_item(&cursor); item && r == 0; item = next_item(&cursor))
        r = append_item(key, list, item, error);
    if (r == 0 && list->count < key->minimum)
        r = error_set(error, -EINVAL, "needs at least %" PRIu32 " path", key->minimum);
    if (r == 0 && key->maximum && list->count > key->maximum)
        r = error_set(error, -EINVAL, "must be one name");
    return r;
}

/* An address, an IPv6 one in brackets. The only name accepted is localhost; others would need a
 * resolver. */
static bool is_host(const char *host, size_t length)
{
    bool is_ipv6 = length > 2 && host[0] == '[' && host[length - 1] == ']';
    struct in6_addr address;
    char copy[CONFIG_TEXT_BYTES];

    (void)snprintf(copy, sizeof(copy), "%.*s", (int)(is_ipv6 ? length - 2 : length),
                   is_ipv6 ? host + 1 : host);
    return inet_pton(is_ipv6 ? AF_INET6 : AF_INET, copy, &address) == 1 ||
           (!is_ipv6 && strcmp(copy, "localhost") == 0);
}

/* A group or an address to listen at. */
static int parse_text(const struct config_key *key, const char *text,
                      char value[static CONFIG_TEXT_BYTES], struct error *error)
{
    const char *colon = strrchr(text, ':');
    size_t length = strlen(text);
    uint64_t port;

    if (key->type == KEY_GROUP && (text[strcspn(text, " \t:,")] || has_control_characters(text)))
        return error_set(error, -EINVAL, "must be the name of one group");
    if (length >= CONFIG_TEXT_BYTES)
        return error_set(error, -EINVAL, "more than %d bytes", CONFIG_TEXT_BYTES - 1);
    if (key->type == KEY_LISTEN && length &&
        (!colon || !is_host(text, (size_t)(colon - text)) || read_digits(colon + 1, &port) < 0 ||
         port < 1 || port > UINT16_MAX))
        return error_set(error, -EINVAL, "must be ADDRESS:PORT or empty, as in 127.0.0.1:9824");
    memcpy(value, text, length + 1);
    return 0;
}

int config_value_parse(const struct config_key *key, const char *text, struct config *config,
                       struct error *error)
{
    void *value = (char *)config + key->offset;
    char copy[CONFIG_LINE_BYTES];
    struct config_list list;
    uint64_t number;
    int r;

    if (strlen(text) >= sizeof(copy))
        return error_set(error, -EINVAL, "more than %d bytes", CONFIG_LINE_BYTES - 1);
    memcpy(copy, text, strlen(text) + 1);
    switch (key->type) {
    case KEY_PATH:
        r = check_path(text, error);
        if (r == 0)
            memcpy(value, text, strlen(text) + 1);
        return r;
    case KEY_PATHS:
    case KEY_WORDS:
        return parse_list(key, copy, value, error);
    case KEY_GROUP:
    case KEY_LISTEN:
        return parse_text(key, text, value, error);
    case KEY_NUMBER:
        if (read_digits(text, &number) < 0 || number < key->minimum || number > key->maximum)
            return error_set(error, -EINVAL, "must be a whole number from %" PRIu32 " to %" PRIu32,
                             key->minimum, key->maximum);
        *(uint32_t *)value = (uint32_t)number;
        return 0;
    case KEY_SWITCH:
        r = parse_choice(switch_names, text, error);
        if (r >= 0)
            *(bool *)value = r == 1;
        return r < 0 ? r : 0;
    case KEY_CHOICE:
        if (key->refused && strcmp(key->refused, text) == 0)
            return error_set(error, -EINVAL, "%s %s", key->refused, key->refusal);
        r = parse_choice(key->choices, text, error);
        if (r >= 0)
            *(int *)value = r;
        return r < 0 ? r : 0;
    case KEY_ROUTES:
        break;
    }
    /* No name stands twice, so the array cannot overflow. */
    r = *text ? parse_list(key, copy, &list, error) : parse_choice(key->choices, text, error);
    for (unsigned i = 0; r == 0 && i < GUEST_ROUTES; i++) {
        const char *name = i < list.count ? config_list_item(&list, i) : NULL;

        ((enum guest_route *)value)[i] =
            name ? ROUTE_NONE + 1 + (enum guest_route)parse_choice(key->choices, name, NULL)
                 : ROUTE_NONE;
    }
    return r;
}

int config_value_format(const struct config_key *key, const struct config *config,
                        struct buffer *text)
{
    const void *value = (const char *)config + key->offset;
    const struct config_list *list = value;
    const enum guest_route *routes = value;

    switch (key->type) {
    case KEY_PATH:
    case KEY_GROUP:
    case KEY_LISTEN:
        return buffer_append_text(text, value);
    case KEY_PATHS:
    case KEY_WORDS:
        for (unsigned i = 0; i < list->count; i++)
            buffer_append_format(text, "%s%s", i ? ", " : "", config_list_item(list, i));
        break;
    case KEY_NUMBER:
        return buffer_append_format(text, "%" PRIu32, *(const uint32_t *)value);
    case KEY_SWITCH:
        return buffer_append_text(text, switch_names[*(const bool *)value]);
    case KEY_CHOICE:
        return buffer_append_text(text, key->choices[*(const int *)value]);
    case KEY_ROUTES:
        for (unsigned i = 0; i < GUEST_ROUTES && routes[i] != ROUTE_NONE; i++)
            buffer_append_format(text, "%s%s", i ? ", " : "", key->choices[routes[i] - 1]);
        break;
    }
    return buffer_error(text);
}
