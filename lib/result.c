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

/* The codes by name, and over HTTP. */

const char *status_name(int code)
{
    static const char *const names[] = {
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    };

    return code >= 0 && (size_t)code < array_length(names) ? names[code] : NULL;
}

unsigned status_of_http(enum status_code code)
{
    switch (code) {
    case STATUS_OK:
        return 200;
    case STATUS_CANCELLED:
        return 499;
    case STATUS_INVALID_ARGUMENT:
    case STATUS_FAILED_PRECONDITION:
    case STATUS_OUT_OF_RANGE:
        return 400;
    case STATUS_PERMISSION_DENIED:
        return 403;
    case STATUS_NOT_FOUND:
        return 404;
    case STATUS_ALREADY_EXISTS:
        return 409;
    case STATUS_RESOURCE_EXHAUSTED:
        return 429;
    case STATUS_UNIMPLEMENTED:
        return 501;
    case STATUS_UNAVAILABLE:
        return 503;
    case STATUS_DEADLINE_EXCEEDED:
        return 504;
    case STATUS_INTERNAL:
        break;
    }
    return 500;
}
