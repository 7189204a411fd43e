/* result.c - texts of errors, written into memory that the caller owns.
 *
 * Nothing here allocates or fails, so that an error path can be walked when memory is what is
 * missing. Text that does not fit is cut, never at the cost of the code. errno is left alone: a
 * caller may still want to look at it after it has described it.
 */
#include "lib/result.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void error_format(struct error *error, int code, const char *format, va_list arguments)
    __attribute__((format(printf, 3, 0)));

static void error_format(struct error *error, int code, const char *format, va_list arguments)
{
    char text[ERROR_TEXT_BYTES]; /* an argument may point into error->text */

    (void)vsnprintf(text, sizeof(text), format, arguments);
    memcpy(error->text, text, sizeof(text));
    error->code = code;
}

int error_set(struct error *error, int code, const char *format, ...)
{
    int saved = errno;
    va_list arguments;

    if (!error)
        return code;
    va_start(arguments, format);
    error_format(error, code, format, arguments);
    va_end(arguments);
    errno = saved;
    return code;
}

int error_set_errno(struct error *error, int code, const char *format, ...)
{
    int saved = errno;
    size_t used;
    va_list arguments;

    if (!error)
        return code;
    va_start(arguments, format);
    error_format(error, code, format, arguments);
    va_end(arguments);
    used = strlen(error->text);
    (void)snprintf(error->text + used, sizeof(error->text) - used, ": %s", strerror(-code));
    errno = saved;
    return code;
}

int error_prefix(struct error *error, const char *format, ...)
{
    int saved = errno;
    char old[ERROR_TEXT_BYTES];
    size_t used;
    va_list arguments;

    if (!error)
        return 0;
    memcpy(old, error->text, sizeof(old));
    va_start(arguments, format);
    error_format(error, error->code, format, arguments);
    va_end(arguments);
    used = strlen(error->text);
    (void)snprintf(error->text + used, sizeof(error->text) - used, "%s", old);
    errno = saved;
    return error->code;
}
