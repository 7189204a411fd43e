/* SPDX-License-Identifier: Apache-2.0 */
/* curl_library.c - dlopen(3) of the GnuTLS build, by the name that its ABI has.
 *
 * It is never unloaded: libraries under it keep state of their own in the process.
 */
#include "lib/curl_library.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

struct curl_library libcurl;

static const char library_name[] = "libcurl-gnutls.so.4";

int curl_library_load(struct error *error)
{
    static bool loaded;
    struct curl_library found = {0};
    void *handle;

    if (loaded)
        return 0;
    handle = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return error_set(error, -ENOPKG, "HTTP needs libcurl, install libcurl3-gnutls: %s",
                         dlerror());
#define CURL_LIBRARY_FIND(name)                                                                    \
    found.name = (typeof(found.name))dlsym(handle, "curl_" #name);                                 \
    if (!found.name)                                                                               \
        return error_set(error, -ENOPKG, "HTTP needs libcurl, install libcurl3-gnutls: %s",        \
                         dlerror());
    CURL_LIBRARY_FUNCTIONS(CURL_LIBRARY_FIND)
#undef CURL_LIBRARY_FIND
    if (found.global_init(CURL_GLOBAL_NOTHING) != CURLE_OK)
        return error_set(error, -ENOPKG, "%s cannot be initialised", library_name);
    libcurl = found;
    loaded = true;
    return 0;
}
