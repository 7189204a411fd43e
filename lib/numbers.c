/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/numbers.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

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
