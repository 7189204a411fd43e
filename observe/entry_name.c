/* SPDX-License-Identifier: Apache-2.0 */
/* entry_name.c - tells the names of the two layouts apart.
 *
 * They cannot be confused: base64url of a path begins with 'L' (the six upper bits of '/'), which
 * is not a hex digit. The decoded path is data: it is stored and shown, never opened. It is the
 * volume's identity byte by byte, so it is not normalised.
 */
#include "observe/mount_info.h"

#include <stdio.h>
#include <string.h>

#include "lib/json.h"
#include "lib/text.h"

static bool is_sha256(const char *name)
{
    return strlen(name) == 64 && strspn(name, "0123456789abcdef") == 64;
}

void entry_name_show(const char *name, char ret_shown[static SHOWN_NAME_BYTES])
{
    const char *end = name + strlen(name);
    char escaped[TEXT_ESCAPED_BYTES];
    size_t used = 0;

    while (name < end) {
        size_t length = text_escape_next(&name, end, escaped);

        if (used + length + strlen("...") >= SHOWN_NAME_BYTES) {
            used += (size_t)snprintf(ret_shown + used, SHOWN_NAME_BYTES - used, "...");
            break;
        }
        memcpy(ret_shown + used, escaped, length);
        used += length;
    }
    ret_shown[used] = '\0';
}

static int refuse(const char *name, const char *why, struct error *error)
{
    char shown[SHOWN_NAME_BYTES];

    entry_name_show(name, shown);
    return error_set(error, ENTRY_NAME_OTHER, "directory name %s: %s", shown, why);
}

int entry_name_decode(const char *name, char ret_path[static ENTRY_PATH_BYTES], struct error *error)
{
    char path[ENTRY_PATH_BYTES];
    size_t length;
    int r;

    if (is_sha256(name))
        return ENTRY_NAME_SHA256;
    r = base64url_decode(name, strlen(name), path, BASE64URL_PATH_BYTES, &length);
    if (r == BASE64URL_TOO_LONG)
        return refuse(name, "longer than any path", error);
    if (r < 0)
        return refuse(name, "neither canonical base64url with padding nor a SHA-256", error);
    if (!length || path[0] != '/')
        return refuse(name, "does not decode to an absolute path", error);
    if (!json_is_text(path, length))
        return refuse(name, "decodes to a path that is not UTF-8 or has a NUL", error);
    memcpy(ret_path, path, length);
    ret_path[length] = '\0';
    return ENTRY_NAME_PATH;
}
