/* SPDX-License-Identifier: Apache-2.0 */
/* service_account.c - see service_account.h.
 *
 * The files belong to crustd's own container, so they are not below --root. The address has to be
 * one: a name would have to be resolved, which waits or takes a thread, and the kubelet gives none.
 */
#include "reconciler/kubernetes/service_account.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/path.h"

static bool is_address(const char *text)
{
    unsigned char bytes[sizeof(struct in6_addr)];

    return strlen(text) < SERVICE_ACCOUNT_ADDRESS_BYTES &&
           (inet_pton(AF_INET, text, bytes) == 1 || inet_pton(AF_INET6, text, bytes) == 1);
}

static bool parse_port(const char *text, uint16_t *ret_port)
{
    char *end;
    unsigned long port;

    errno = 0;
    port = strtoul(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end || errno || port < 1 || port > UINT16_MAX)
        return false;
    *ret_port = (uint16_t)port;
    return true;
}

int service_account_find(const char *directory, struct service_account *ret_account,
                         struct error *error)
{
    const char *host = getenv("KUBERNETES_SERVICE_HOST"), *port = getenv("KUBERNETES_SERVICE_PORT");
    struct service_account *account = ret_account;

    if (!host || !*host || !port)
        return error_set(error, SERVICE_ACCOUNT_NONE,
                         "KUBERNETES_SERVICE_HOST and _PORT are not set: crustd does not run in a "
                         "pod");
    if (!is_address(host) || !parse_port(port, &account->port))
        return error_set(error, SERVICE_ACCOUNT_NONE,
                         "KUBERNETES_SERVICE_HOST and _PORT are no address and port");
    (void)snprintf(account->address, sizeof(account->address), "%s", host);
    (void)snprintf(account->ca_file, sizeof(account->ca_file), "%s/ca.crt", directory);
    account->directory = directory;
    return SERVICE_ACCOUNT_FOUND;
}

static int read_file(const char *path, struct buffer *text, struct error *error)
{
    cleanup(fd_closep) int root = -1;
    int r = path_open_root("/", &root);

    if (r < 0)
        return error_set_errno(error, r, "cannot open /");
    return path_read_in_root(root, path, text, error);
}

/* What may stand in a header: a token is of a JWT's characters, or an opaque word. */
static bool is_word(const char *text)
{
    for (const char *at = text; *at; at++)
        if (!isgraph((unsigned char)*at))
            return false;
    return *text != '\0';
}

static void trim(struct buffer *text)
{
    size_t before = 0, after = text->length;

    while (after > 0 && isspace((unsigned char)text->data[after - 1]))
        after--;
    buffer_rewind(text, (struct buffer_mark){.length = after});
    while (before < after && isspace((unsigned char)text->data[before]))
        before++;
    buffer_consume(text, before);
}

int service_account_read_token(const struct service_account *account, struct buffer *ret_token,
                               struct error *error)
{
    char path[PATH_MAX];
    int r;

    (void)snprintf(path, sizeof(path), "%s/token", account->directory);
    buffer_clear(ret_token);
    r = read_file(path, ret_token, error);
    if (r < 0)
        return r;
    if (r != PATH_OK)
        return SERVICE_ACCOUNT_NONE;
    trim(ret_token);
    if (strlen(buffer_text(ret_token)) != ret_token->length || !is_word(buffer_text(ret_token)))
        return error_set(error, SERVICE_ACCOUNT_NONE, "%s holds no token", path);
    return 0;
}
