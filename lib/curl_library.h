/* SPDX-License-Identifier: Apache-2.0 */
/* curl_library.h - libcurl, loaded by the first HTTP request.
 *
 * Linked as usual it brings thirty libraries, which take 1 MB of private memory before main() in
 * every process. A node whose VMMs are all QEMU and whose agents answer directly needs no HTTP, so
 * crustd loads libcurl with the first request. docs/measurements.md has the figures.
 */
#pragma once

/* Its checks of an option's type are macros over the functions' own names. */
#define CURL_DISABLE_TYPECHECK

#include <curl/curl.h>

#include "lib/result.h"

/* clang-format off */
#define CURL_LIBRARY_FUNCTIONS(each)                                                               \
    each(global_init) each(slist_append) each(slist_free_all)                                      \
    each(easy_init) each(easy_setopt) each(easy_getinfo) each(easy_strerror)                        \
    each(easy_cleanup)                                                                             \
    each(multi_init) each(multi_setopt) each(multi_add_handle) each(multi_remove_handle)           \
    each(multi_socket_action) each(multi_info_read) each(multi_cleanup)
/* clang-format on */

/* curl_easy_init() is called as libcurl.easy_init(), and so on. */
struct curl_library {
#define CURL_LIBRARY_MEMBER(name) typeof(curl_##name) *name;
    CURL_LIBRARY_FUNCTIONS(CURL_LIBRARY_MEMBER)
#undef CURL_LIBRARY_MEMBER
};

extern struct curl_library libcurl; /* of NULLs until curl_library_load() has returned 0 */

/* Loads and initialises it, once in the life of a process: that reads some thirty files, and is the
 * only time that blocks. 0 or -ENOPKG, which the next call may find mended. */
int curl_library_load(struct error *error);
