/* SPDX-License-Identifier: Apache-2.0 */
/* service_account.h - how a pod reaches the API server, and as whom.
 *
 * KUBERNETES_SERVICE_HOST and _PORT come from the kubelet, token and ca.crt lie in a directory that
 * it keeps up to date: it replaces the token before it expires, so each request reads it anew.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/buffer.h"
#include "lib/result.h"

enum { SERVICE_ACCOUNT_ADDRESS_BYTES = 46, SERVICE_ACCOUNT_TOKEN_BYTES = 16 * 1024 };

struct service_account {
    char address[SERVICE_ACCOUNT_ADDRESS_BYTES]; /* IPv4 or IPv6 */
    uint16_t port;
    char ca_file[PATH_MAX];
    const char *directory; /* borrowed */
};

enum service_account_outcome {
    SERVICE_ACCOUNT_FOUND,
    SERVICE_ACCOUNT_NONE, /* crustd is in no pod, or in one without an address that can be used */
};

/* An enum service_account_outcome; the error says what is missing. */
int service_account_find(const char *directory, struct service_account *ret_account,
                         struct error *error);

/* The token as it is now, without the white space around it. 0, or SERVICE_ACCOUNT_NONE: there is
 * no usable one; or -errno. */
int service_account_read_token(const struct service_account *account, struct buffer *ret_token,
                               struct error *error);
