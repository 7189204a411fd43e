/* SPDX-License-Identifier: Apache-2.0 */
/* http_client.c - libcurl's easy interface, narrowed to what crustctl needs.
 *
 * Everything that libcurl would take from its surroundings is switched off: proxies, redirects,
 * protocols other than HTTP, signals. The socket is named by an open descriptor, so that its path
 * may be of any length (--root puts long prefixes before it). The answer is collected in a buffer
 * of its own first, so that half an answer never reaches the caller.
 */
#include "lib/http_client.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/curl_library.h"

struct request {
    CURL *curl;
    struct curl_slist *headers;
    struct buffer body;
    int body_error; /* why the answer's body was given up */
    char detail[CURL_ERROR_SIZE];
};

static void request_done(struct request *request)
{
    if (!request->curl)
        return; /* libcurl may not even be loaded */
    libcurl.slist_free_all(request->headers);
    libcurl.easy_cleanup(request->curl);
    buffer_done(&request->body);
}

static size_t on_body(char *data, size_t size, size_t count, void *context)
{
    struct request *request = context;

    request->body_error = buffer_append(&request->body, data, size * count);
    return request->body_error < 0 ? 0 : size * count;
}

/* The options that are the same for every request. libcurl remembers nothing that is not copied,
 * except CURLOPT_POSTFIELDS and the lists. */
static CURLcode request_prepare(struct request *request, const char *socket_path,
                                unsigned timeout_seconds)
{
    CURL *curl = request->curl;
    CURLcode code = libcurl.easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, socket_path);

    if (code == CURLE_OK)
        code = libcurl.easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http");
    if (code == CURLE_OK)
        code = libcurl.easy_setopt(curl, CURLOPT_NOPROXY, "*");
    if (code == CURLE_OK)
        code = libcurl.easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    if (code == CURLE_OK)
        code = libcurl.easy_setopt(curl, CURLOPT_TIMEOUT, (long)timeout_seconds);
    if (code == CURLE_OK)
        code = libcurl.easy_setopt(curl, CURLOPT_ERRORBUFFER, request->detail);
    if (code == CURLE_OK)
        code = libcurl.easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    if (code == CURLE_OK)
        code = libcurl.easy_setopt(curl, CURLOPT_WRITEDATA, request);
    return code;
}

static CURLcode request_set_body(struct request *request, const char *body)
{
    CURLcode code;

    if (!body)
        return CURLE_OK;
    request->headers = libcurl.slist_append(NULL, "Content-Type: application/json");
    if (!request->headers)
        return CURLE_OUT_OF_MEMORY;
    code = libcurl.easy_setopt(request->curl, CURLOPT_HTTPHEADER, request->headers);
    if (code == CURLE_OK)
        code = libcurl.easy_setopt(request->curl, CURLOPT_POSTFIELDS, body);
    return code;
}

static CURLcode request_perform(struct request *request, const char *method,
                                const char *path_and_query, const char *body)
{
    cleanup(buffer_done) struct buffer url = BUFFER_INIT(64 * 1024);
    CURLcode code;

    if (buffer_append_format(&url, "http://localhost%s", path_and_query) < 0)
        return CURLE_OUT_OF_MEMORY;
    code = libcurl.easy_setopt(request->curl, CURLOPT_URL, buffer_text(&url));
    if (code == CURLE_OK)
        code = request_set_body(request, body);
    if (code == CURLE_OK && !body && strcmp(method, "POST") == 0)
        code = libcurl.easy_setopt(request->curl, CURLOPT_POSTFIELDS, "");
    if (code == CURLE_OK)
        code = libcurl.easy_setopt(request->curl, CURLOPT_CUSTOMREQUEST, method);
    return code == CURLE_OK ? libcurl.easy_perform(request->curl) : code;
}

static int describe(const struct request *request, CURLcode code, const char *socket_path,
                    struct error *error)
{
    const char *detail = *request->detail ? request->detail : libcurl.easy_strerror(code);
    int r = -EPROTO;

    if (code == CURLE_COULDNT_CONNECT)
        r = HTTP_UNREACHABLE;
    else if (code == CURLE_OPERATION_TIMEDOUT)
        r = -ETIMEDOUT;
    else if (code == CURLE_OUT_OF_MEMORY)
        r = -ENOMEM;
    else if (code == CURLE_WRITE_ERROR && request->body_error)
        r = request->body_error;
    if (r == -EMSGSIZE)
        detail = "the answer is too long";
    return error_set(error, r, "%s: %s", socket_path, detail);
}

int http_request(const char *socket_path, const char *method, const char *path_and_query,
                 const char *body, unsigned timeout_seconds, long *ret_status,
                 struct buffer *ret_body, struct error *error)
{
    cleanup(request_done) struct request request = {.body = BUFFER_INIT(ret_body->limit)};
    cleanup(fd_closep) int handle = open(socket_path, O_PATH | O_CLOEXEC);
    char link[32];
    CURLcode code;
    long status;
    int r;

    if (handle < 0)
        return error_set(error, HTTP_UNREACHABLE, "%s: %s", socket_path, strerror(errno));
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", handle);
    r = curl_library_load(error);
    if (r < 0)
        return r;
    request.curl = libcurl.easy_init();
    if (!request.curl)
        return error_set(error, -ENOMEM, "%s: cannot set up libcurl", socket_path);
    code = request_prepare(&request, link, timeout_seconds);
    if (code == CURLE_OK)
        code = request_perform(&request, method, path_and_query, body);
    if (code == CURLE_OK)
        code = libcurl.easy_getinfo(request.curl, CURLINFO_RESPONSE_CODE, &status);
    if (code != CURLE_OK)
        return describe(&request, code, socket_path, error);
    r = buffer_append(ret_body, buffer_text(&request.body), request.body.length);
    if (r < 0)
        return error_set_errno(error, r, "%s", socket_path);
    *ret_status = status;
    return 0;
}
