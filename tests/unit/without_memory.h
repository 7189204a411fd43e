/* SPDX-License-Identifier: Apache-2.0 */
/* without_memory.h - a function whose n-th allocation fails, for each n.
 *
 * Needs malloc(3) for itself, so not under AddressSanitizer: a test that includes it skips there.
 */
#pragma once

#include "tests/unit/test.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif

static long allocations_left = -1; /* the one at 0 fails; below 0: none does */
static bool has_failed;
static long live;

#ifndef __SANITIZE_ADDRESS__
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void __libc_free(void *old);

static bool may_allocate(void)
{
    if (allocations_left < 0)
        return true;
    has_failed = has_failed || allocations_left == 0;
    return allocations_left-- != 0;
}

static void *counted(void *memory)
{
    live += memory != NULL;
    return memory;
}

void *malloc(size_t size)
{
    return may_allocate() ? counted(__libc_malloc(size)) : NULL;
}

void *calloc(size_t count, size_t size)
{
    return may_allocate() ? counted(__libc_calloc(count, size)) : NULL;
}

void *realloc(void *old, size_t size)
{
    void *memory = may_allocate() ? __libc_realloc(old, size) : NULL;

    live += memory && !old;
    return memory;
}

void free(void *old)
{
    live -= old != NULL;
    __libc_free(old);
}

/* libc's makes two allocations and can do without the second. */
__attribute__((format(printf, 2, 0))) static int print(char **ret_text, const char *format,
                                                       va_list list)
{
    char text[8192];
    int length = vsnprintf(text, sizeof(text), format, list);

    assert_in_range(length, 0, sizeof(text) - 1);
    *ret_text = malloc((size_t)length + 1);
    if (!*ret_text)
        return -1;
    memcpy(*ret_text, text, (size_t)length + 1);
    return length;
}

int plain_asprintf(char **ret_text, const char *format, ...) __asm__("asprintf")
    __attribute__((format(printf, 2, 3)));
int plain_asprintf(char **ret_text, const char *format, ...)
{
    va_list list;
    int length;

    va_start(list, format);
    length = print(ret_text, format, list);
    va_end(list);
    return length;
}

int checked_asprintf(char **ret_text, int flag, const char *format, ...) __asm__("__asprintf_chk")
    __attribute__((format(printf, 3, 4)));
int checked_asprintf(char **ret_text, int flag, const char *format, ...)
{
    va_list list;
    int length;

    va_start(list, format);
    length = print(ret_text, format, list);
    va_end(list);
    return length;
}
#endif

typedef int parse_function(const char *text, size_t length);

static bool try_once(parse_function *parse, const char *text, size_t length, long allocation)
{
    long before = live;
    int r;

    has_failed = false;
    allocations_left = allocation;
    r = parse(text, length);
    allocations_left = -1;
    assert_int_equal(live, before);
    if (has_failed)
        assert_true(r != 0);
    return has_failed;
}

/* Returns how many allocations it makes. */
static inline long fail_all(parse_function *parse, const char *text, size_t length)
{
    long allocation = 0;

    while (try_once(parse, text, length, allocation))
        allocation++;
    return allocation;
}
