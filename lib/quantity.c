/* SPDX-License-Identifier: Apache-2.0 */
/* quantity.c - a number is digits * 2^two * 10^ten, and stays exact until its end. */
#include "lib/quantity.h"

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"

enum { QUANTITY_CHARS = 64, EXPONENT_CHARS = 4 };

struct number {
    uint64_t digits;
    int ten;
    unsigned two;
};

static int multiply(uint64_t *number, uint64_t factor)
{
    return __builtin_mul_overflow(*number, factor, number) || *number > INT64_MAX
               ? QUANTITY_TOO_MUCH
               : 0;
}

/* Zeros are counted until it is clear that another digit follows them: those at the end of a
 * fraction say nothing. */
static int add_digit(struct number *number, unsigned digit, unsigned *zeros)
{
    int r = 0;

    if (digit == 0) {
        ++*zeros;
        return 0;
    }
    for (; r == 0 && number->digits && *zeros; --*zeros)
        r = multiply(&number->digits, 10);
    *zeros = 0;
    if (r == 0)
        r = multiply(&number->digits, 10);
    if (r == 0)
        number->digits += digit;
    return number->digits > INT64_MAX ? QUANTITY_TOO_MUCH : r;
}

/* "12", "1.5", ".5", "1.": moves the cursor behind it. Digits that do not fit any more make it too
 * large or, behind the point, too fine. */
static int read_digits(const char **cursor, struct number *number)
{
    bool point = false, any = false;
    unsigned zeros = 0;

    for (;; ++*cursor) {
        if (**cursor == '.' && !point) {
            point = true;
            continue;
        }
        if (**cursor < '0' || **cursor > '9')
            break;
        any = true;
        if (add_digit(number, (unsigned)(**cursor - '0'), &zeros) < 0)
            return point ? QUANTITY_FRACTION : QUANTITY_TOO_MUCH;
        number->ten -= point;
    }
    number->ten += (int)zeros;
    return any ? 0 : QUANTITY_WRONG;
}

static const struct suffix {
    const char *text;
    int ten;
    unsigned two;
} suffixes[] = {
    {"", 0, 0},    {"Ki", 0, 10}, {"Mi", 0, 20}, {"Gi", 0, 30}, {"Ti", 0, 40}, {"Pi", 0, 50},
    {"Ei", 0, 60}, {"n", -9, 0},  {"u", -6, 0},  {"m", -3, 0},  {"k", 3, 0},   {"M", 6, 0},
    {"G", 9, 0},   {"T", 12, 0},  {"P", 15, 0},  {"E", 18, 0},
};

/* One of these, or "e3", "E-3". */
static int read_suffix(const char *text, struct number *number)
{
    const char *digits;
    size_t length;

    for (size_t i = 0; i < array_length(suffixes); i++)
        if (strcmp(text, suffixes[i].text) == 0) {
            number->ten += suffixes[i].ten;
            number->two = suffixes[i].two;
            return 0;
        }
    digits = text + 1 + (text[1] == '+' || text[1] == '-');
    length = strspn(digits, "0123456789");
    if ((*text != 'e' && *text != 'E') || length == 0 || digits[length])
        return QUANTITY_WRONG;
    if (length > EXPONENT_CHARS)
        return text[1] == '-' ? QUANTITY_FRACTION : QUANTITY_TOO_MUCH;
    number->ten += (int)strtol(text + 1, NULL, 10);
    return 0;
}

static int to_bytes(struct number *number, uint64_t *ret_bytes)
{
    int r = 0;

    if (number->digits == 0) {
        *ret_bytes = 0;
        return 0;
    }
    /* A tenth is a fifth of a half, and halves are had from the binary suffix: the digits are no
     * multiple of ten. */
    for (; number->ten < 0; number->ten++) {
        if (number->digits % 5 != 0 || number->two == 0)
            return QUANTITY_FRACTION;
        number->digits /= 5;
        number->two--;
    }
    for (; r == 0 && number->ten > 0; number->ten--)
        r = multiply(&number->digits, 10);
    for (; r == 0 && number->two > 0; number->two--)
        r = multiply(&number->digits, 2);
    if (r == 0)
        *ret_bytes = number->digits;
    return r;
}

int quantity_parse(const char *text, uint64_t *ret_bytes)
{
    const char *cursor = text + (*text == '+');
    struct number number = {0};
    int r;

    if (strlen(text) > QUANTITY_CHARS)
        return QUANTITY_WRONG;
    r = read_digits(&cursor, &number);
    if (r == 0)
        r = read_suffix(cursor, &number);
    return r == 0 ? to_bytes(&number, ret_bytes) : r;
}

const char *quantity_error(int error)
{
    switch (error) {
    case QUANTITY_FRACTION:
        return "no whole number of bytes";
    case QUANTITY_TOO_MUCH:
        return "more than any device has";
    default:
        return "no size: bytes, or a Kubernetes quantity such as 8Gi, 500M or 1.5Ti";
    }
}

/* ---- numbers -------------------------------------------------------------------------------- */

static unsigned digit_of(char character)
{
    if (!isxdigit((unsigned char)character))
        return UINT8_MAX;
    return (unsigned)(isdigit((unsigned char)character)
                          ? character - '0'
                          : tolower((unsigned char)character) - 'a' + 10);
}

static const char *read_number(const char *text, unsigned base, uint32_t *ret_number)
{
    const char *begin = text;
    uint64_t number = 0;

    for (; digit_of(*text) < base; text++) {
        number = number * base + digit_of(*text);
        if (number > UINT32_MAX)
            return NULL;
    }
    *ret_number = (uint32_t)number;
    return text > begin ? text : NULL;
}

const char *numbers_read(const char *text, const char *separators, unsigned base,
                         uint32_t *ret_numbers)
{
    while ((text = read_number(text, base, ret_numbers++)) && *separators) {
        if (*text != *separators)
            return NULL;
        text += *separators == ' ' ? strspn(text, " ") : 1;
        separators++;
    }
    return text;
}
