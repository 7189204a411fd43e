/* SPDX-License-Identifier: Apache-2.0 */
/* result.c - texts of errors, written into memory that the caller owns.
 *
 * Nothing here allocates or fails, so that error paths work when memory is short. Text that does
 * not fit is cut in its middle: the object is named in front, the reason at the end, and a long
 * path stands between them. errno is preserved, because a caller may still need it.
 */
#include "lib/result.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "lib/cleanup.h"

enum {
    WHOLE_BYTES = 4096 + 2 * ERROR_TEXT_BYTES, /* a path and what is said of it */
    FRONT_BYTES = 100,                         /* kept of a text that is too long */
};

bool result_is_shortage(int result)
{
    switch (-result) {
    case EMFILE:
    case ENFILE:
    case ENOMEM:
        return true;
    default:
        return false;
    }
}

static bool is_inside_character(char byte)
{
    return ((unsigned char)byte & 0xc0) == 0x80;
}

/* The whole text first: an argument may point into error->text. errno stays as it is. */
__attribute__((format(printf, 2, 0))) static void put_text(struct error *error, const char *format,
                                                           va_list arguments, const char *colon,
                                                           const char *after)
{
    static const char gap[] = "...";
    char whole[WHOLE_BYTES];
    size_t length, front = FRONT_BYTES;
    int saved = errno;
    const char *end;

    (void)vsnprintf(whole, WHOLE_BYTES - ERROR_TEXT_BYTES, format, arguments);
    length = strlen(whole);
    (void)snprintf(whole + length, sizeof(whole) - length, "%s%s", colon, after);
    length = strlen(whole);
    errno = saved;
    if (length < ERROR_TEXT_BYTES) {
        memcpy(error->text, whole, length + 1);
        return;
    }
    end = whole + length - (ERROR_TEXT_BYTES - sizeof(gap) - FRONT_BYTES);
    while (front && is_inside_character(whole[front]))
        front--;
    while (is_inside_character(*end))
        end++;
    (void)snprintf(error->text, sizeof(error->text), "%.*s%s%s", (int)front, whole, gap, end);
    errno = saved;
}

int error_set(struct error *error, int code, const char *format, ...)
{
    va_list arguments;

    if (!error)
        return code;
    va_start(arguments, format);
    put_text(error, format, arguments, "", "");
    va_end(arguments);
    error->code = code;
    return code;
}

int error_set_errno(struct error *error, int code, const char *format, ...)
{
    int saved = errno;
    va_list arguments;

    if (!error)
        return code;
    va_start(arguments, format);
    put_text(error, format, arguments, ": ", strerror(-code));
    va_end(arguments);
    error->code = code;
    errno = saved;
    return code;
}

int error_prefix(struct error *error, const char *format, ...)
{
    va_list arguments;

    if (!error)
        return 0;
    va_start(arguments, format);
    put_text(error, format, arguments, "", error->text);
    va_end(arguments);
    return error->code;
}

/* ---- status --------------------------------------------------------------------------------- */

/* By code: its name, and HTTP's status for it, which counts where enum status_code has it. */
static const struct status {
    const char *name;
    unsigned http;
} statuses[] = {
    {"OK", 200},
    {"CANCELLED", 499},
    {"UNKNOWN", 500},
    {"INVALID_ARGUMENT", 400},
    {"DEADLINE_EXCEEDED", 504},
    {"NOT_FOUND", 404},
    {"ALREADY_EXISTS", 409},
    {"PERMISSION_DENIED", 403},
    {"RESOURCE_EXHAUSTED", 429},
    {"FAILED_PRECONDITION", 400},
    {"ABORTED", 500},
    {"OUT_OF_RANGE", 400},
    {"UNIMPLEMENTED", 501},
    {"INTERNAL", 500},
    {"UNAVAILABLE", 503},
    {"DATA_LOSS", 500},
    {"UNAUTHENTICATED", 500},
};

const char *status_name(int code)
{
    return code >= 0 && (size_t)code < array_length(statuses) ? statuses[code].name : NULL;
}

unsigned status_of_http(enum status_code code)
{
    return (size_t)code < array_length(statuses) ? statuses[code].http : 500;
}
