/* SPDX-License-Identifier: Apache-2.0 */
/* message.c - one walk over a message's descriptor for each direction. */
#include "api/call.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "api/proto/crust_drive_v1.pb-c.h"
#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/proto.h"
#include "lib/quantity.h"
#include "model/drive.h"
#include "reconciler/command/answers.h"
#include "reconciler/command/drive_form.h"

#define REFUSE(error, ...) answer_refuse((error), ANSWER_BAD_REQUEST, __VA_ARGS__)

enum { ANY_BYTES = INT32_MAX };

/* Of fields that may not have MESSAGE_PATH_CHARS, or that are lists. */
static const struct bound {
    const char *field;
    unsigned bytes, count;
} bounds[] = {
    {"drive_id", DRIVE_ID_CHARS, 0},
    {"sandbox_id", DRIVE_FORM_SANDBOX_CHARS, 0},
    {"host_path", DRIVE_PATH_CHARS, 0},
    {"vm_path", DRIVE_PATH_CHARS, 0},
    {"filesystem_type", DRIVE_FS_TYPE_CHARS, 0},
    {"options", DRIVE_OPTION_CHARS, DRIVE_OPTIONS},
    {"containers", 0, DRIVE_CONTAINERS},
    {"container_id", DRIVE_CONTAINER_ID_CHARS, 0},
    {"path", DRIVE_PATH_CHARS, 0},
    {"sub_path", DRIVE_PATH_CHARS, 0},
    {"fs_type", MESSAGE_WORD_CHARS, 0},
    {"volume_supplemental_group", MESSAGE_WORD_CHARS, 0},
    {"mount_flags", MESSAGE_PATH_CHARS, MESSAGE_MOUNT_OPTIONS},
    {"file_system", MESSAGE_WORD_CHARS, 0},
    {"mount_options", MESSAGE_PATH_CHARS, MESSAGE_MOUNT_OPTIONS},
    {"fsgroup_policy", MESSAGE_WORD_CHARS, 0},
    {"service", ANY_BYTES, 0}, /* of a health check, which knows the names that there are */
};

static const struct bound *find_bound(const char *field)
{
    static const struct bound others = {"", MESSAGE_PATH_CHARS, 0};

    for (size_t i = 0; i < array_length(bounds); i++)
        if (strcmp(bounds[i].field, field) == 0)
            return &bounds[i];
    return &others;
}

/* The name of a field in messages to the client: "containers[15].container_id". The longest fits.
 */
struct field_name {
    char text[80];
};

static struct field_name name_field(const char *prefix, const char *field)
{
    struct field_name name;

    (void)snprintf(name.text, sizeof(name.text), "%s%s%s", prefix, *prefix ? "." : "", field);
    return name;
}

static struct field_name name_element(const char *list, unsigned i)
{
    struct field_name name;

    (void)snprintf(name.text, sizeof(name.text), "%.60s[%u]", list, i);
    return name;
}

/* ---- choices ---- */

/* The word that JSON has for a choice; NULL: it has none, or only the number. */
static const char *word_of(const ProtobufCFieldDescriptor *field, int value)
{
    if (field->descriptor == &crust__drive__v1__attach_drive_request__fsck__descriptor)
        return value >= 0 && value < DRIVE_FSCKS ? drive_fsck_name((enum drive_fsck)value) : NULL;
    if (field->descriptor ==
        &crust__drive__v1__attach_drive_request__fs_group_change_policy__descriptor)
        return value >= 0 && value < DRIVE_GROUP_POLICIES
                   ? drive_group_policy_name((enum drive_group_policy)value)
                   : NULL;
    if (field->descriptor != &crust__drive__v1__drive__state__descriptor)
        return NULL;
    /* The message has 0 for a state that it does not know. */
    return drive_state_name(value > 0 && value <= DRIVE_STATES ? (enum drive_state)(value - 1)
                                                               : DRIVE_STATES);
}

/* The messages' numbers are those of model/drive.h. */
_Static_assert((int)CRUST__DRIVE__V1__ATTACH_DRIVE_REQUEST__FSCK__PREEN == (int)DRIVE_FSCK_PREEN &&
                   (int)DRIVE_FSCKS == 2,
               "fsck");
_Static_assert(
    (int)CRUST__DRIVE__V1__ATTACH_DRIVE_REQUEST__FS_GROUP_CHANGE_POLICY__ON_ROOT_MISMATCH ==
            (int)DRIVE_GROUP_ON_ROOT_MISMATCH &&
        (int)DRIVE_GROUP_POLICIES == 2,
    "fs_group_change_policy");
_Static_assert((int)CRUST__DRIVE__V1__DRIVE__STATE__REQUESTED == (int)DRIVE_REQUESTED + 1 &&
                   (int)CRUST__DRIVE__V1__DRIVE__STATE__LOST == (int)DRIVE_LOST + 1 &&
                   (int)DRIVE_STATES == (int)DRIVE_LOST + 1,
               "state");

/* ---- fields in memory ---- */

static const void *place_of(const ProtobufCMessage *message, size_t offset)
{
    return (const char *)message + offset;
}

static size_t count_of(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    return *(const size_t *)place_of(message, field->quantifier_offset);
}

/* Lists have texts or messages here. */
static const void *element_of(const ProtobufCMessage *message,
                              const ProtobufCFieldDescriptor *field, size_t i)
{
    const char *list = *(const char *const *)place_of(message, field->offset);

    return list + i * (field->type == PROTOBUF_C_TYPE_BYTES ? sizeof(ProtobufCBinaryData)
                                                            : sizeof(void *));
}

const char *message_text(const ProtobufCBinaryData *field)
{
    return field->len ? (const char *)field->data : "";
}

/* ---- the check ---- */

static enum status_code check_fields(const ProtobufCMessage *message, const char *prefix,
                                     struct error *error);

static enum status_code check_value(const ProtobufCFieldDescriptor *field, const void *value,
                                    const char *name, struct error *error)
{
    const ProtobufCBinaryData *text = value;
    const unsigned limit = find_bound(field->name)->bytes;
    const ProtobufCMessage *message;

    switch ((int)field->type) {
    case PROTOBUF_C_TYPE_BYTES:
        if (limit == ANY_BYTES)
            return STATUS_OK;
        if (text->len > limit)
            return REFUSE(error, "%s is too long (more than %u bytes)", name, limit);
        if (!json_is_text(message_text(text), text->len))
            return REFUSE(error, "%s is not UTF-8, or has a NUL", name);
        return STATUS_OK;
    case PROTOBUF_C_TYPE_ENUM:
        if (!protobuf_c_enum_descriptor_get_value(field->descriptor, *(const int *)value))
            return REFUSE(error, "%s is unknown", name);
        return STATUS_OK;
    case PROTOBUF_C_TYPE_MESSAGE:
        message = *(const ProtobufCMessage *const *)value;
        return message ? check_fields(message, name, error) : STATUS_OK;
    default:
        return STATUS_OK;
    }
}

static enum status_code check_fields(const ProtobufCMessage *message, const char *prefix,
                                     struct error *error)
{
    enum status_code code = STATUS_OK;

    for (unsigned i = 0; code == STATUS_OK && i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        const struct field_name name = name_field(prefix, field->name);
        const unsigned limit = find_bound(field->name)->count;

        if (field->label != PROTOBUF_C_LABEL_REPEATED) {
            code = check_value(field, place_of(message, field->offset), name.text, error);
            continue;
        }
        if (count_of(message, field) > limit)
            return REFUSE(error, "there are more than %u %s", limit, name.text);
        for (unsigned j = 0; code == STATUS_OK && j < count_of(message, field); j++)
            code = check_value(field, element_of(message, field, j),
                               name_element(name.text, j).text, error);
    }
    return code;
}

enum status_code message_check(const ProtobufCMessage *message, struct error *error)
{
    return check_fields(message, "", error);
}

/* ---- from JSON ---- */

static void put_number(struct buffer *wire, uint64_t number)
{
    char bytes[10];
    size_t length = 0;

    for (; number >= 0x80; number >>= 7)
        bytes[length++] = (char)(number | 0x80);
    bytes[length++] = (char)number;
    (void)buffer_append(wire, bytes, length);
}

/* Source: protobuf's encoding, wire types 0 (varint) and 2 (length and bytes). */
static void put_varint(struct buffer *wire, const ProtobufCFieldDescriptor *field, uint64_t number)
{
    put_number(wire, (uint64_t)field->id << 3);
    put_number(wire, number);
}

static void put_bytes(struct buffer *wire, const ProtobufCFieldDescriptor *field, const char *bytes,
                      size_t length)
{
    put_number(wire, (uint64_t)field->id << 3 | 2);
    put_number(wire, length);
    if (length)
        (void)buffer_append(wire, bytes, length);
}

/* The bandwidth's tokens are bytes. */
static bool is_size(const char *name)
{
    return strcmp(name, "rate_limiter.bandwidth.size") == 0 ||
           strcmp(name, "rate_limiter.bandwidth.one_time_burst") == 0;
}

static enum status_code take_number(const cJSON *object, const cJSON *member,
                                    const ProtobufCFieldDescriptor *field, const char *name,
                                    struct buffer *wire, struct error *error)
{
    uint64_t number = 0;

    if (json_number(object, member->string, &number) != JSON_NUMBER &&
        !(is_size(name) && cJSON_IsString(member) &&
          quantity_parse(member->valuestring, &number) == 0))
        return REFUSE(error, "%s is no number%s", name, is_size(name) ? " of bytes" : "");
    if (field->type == PROTOBUF_C_TYPE_UINT32 && number > UINT32_MAX)
        return REFUSE(error, "%s must be less than %" PRIu32, name, UINT32_MAX);
    put_varint(wire, field, number);
    return STATUS_OK;
}

static enum status_code take_word(const cJSON *member, const ProtobufCFieldDescriptor *field,
                                  const char *name, struct buffer *wire, struct error *error)
{
    const char *word;

    for (int i = 0; cJSON_IsString(member) && (word = word_of(field, i)); i++) {
        if (strcmp(word, member->valuestring) != 0)
            continue;
        put_varint(wire, field, (uint64_t)i);
        return STATUS_OK;
    }
    return REFUSE(error, "%s is neither \"%s\" nor \"%s\"", name, word_of(field, 0),
                  word_of(field, 1)); /* those of requests have two */
}

static enum status_code take_object(const ProtobufCMessageDescriptor *type, const cJSON *object,
                                    const char *prefix, uint32_t known, struct buffer *wire,
                                    struct error *error);

static enum status_code take_value(const cJSON *object, const cJSON *member,
                                   const ProtobufCFieldDescriptor *field, const char *name,
                                   struct buffer *wire, struct error *error)
{
    cleanup(buffer_done) struct buffer inner = BUFFER_INIT(MESSAGE_BYTES);
    enum status_code code;

    switch ((int)field->type) {
    case PROTOBUF_C_TYPE_BYTES:
        if (!cJSON_IsString(member))
            return REFUSE(error, "%s is no text", name);
        put_bytes(wire, field, member->valuestring, strlen(member->valuestring));
        return STATUS_OK;
    case PROTOBUF_C_TYPE_BOOL:
        if (!cJSON_IsBool(member))
            return REFUSE(error, "%s is neither true nor false", name);
        put_varint(wire, field, cJSON_IsTrue(member));
        return STATUS_OK;
    case PROTOBUF_C_TYPE_ENUM:
        return take_word(member, field, name, wire, error);
    case PROTOBUF_C_TYPE_MESSAGE:
        code = take_object(field->descriptor, member, name, 0, &inner, error);
        put_bytes(wire, field, inner.data, inner.length);
        (void)buffer_fail(wire, buffer_error(&inner));
        return code;
    default:
        return take_number(object, member, field, name, wire, error);
    }
}

static enum status_code take_list(const cJSON *list, const ProtobufCFieldDescriptor *field,
                                  const char *name, struct buffer *wire, struct error *error)
{
    enum status_code code = STATUS_OK;
    const cJSON *element;
    unsigned i = 0;

    if (!cJSON_IsArray(list))
        return REFUSE(error, "%s is no list", name);
    cJSON_ArrayForEach(element, list)
    {
        if (code == STATUS_OK)
            code = take_value(list, element, field, name_element(name, i++).text, wire, error);
    }
    return code;
}

/* The name of a member that is refused is not shown: who knows what a client put there. `known`:
 * the number of a field that is known already, or 0. */
static enum status_code take_object(const ProtobufCMessageDescriptor *type, const cJSON *object,
                                    const char *prefix, uint32_t known, struct buffer *wire,
                                    struct error *error)
{
    const char *whole = *prefix ? prefix : "the body";
    enum status_code code = STATUS_OK;
    const cJSON *member;

    if (!cJSON_IsObject(object))
        return REFUSE(error, "%s is no JSON object", whole);
    cJSON_ArrayForEach(member, object)
    {
        const ProtobufCFieldDescriptor *field = type->fields, *end = field + type->n_fields;
        struct field_name name;

        while (field < end && strcasecmp(field->name, member->string) != 0)
            field++;
        if (field == end || field->id == known)
            return REFUSE(error, "%s has a member that is not known here", whole);
        if (json_member(object, member->string) != member)
            return REFUSE(error, "%s has a member twice", whole);
        if (cJSON_IsNull(member))
            continue;
        name = name_field(prefix, field->name);
        code = field->label == PROTOBUF_C_LABEL_REPEATED
                   ? take_list(member, field, name.text, wire, error)
                   : take_value(object, member, field, name.text, wire, error);
        if (code != STATUS_OK)
            return code;
    }
    return STATUS_OK;
}

enum status_code message_read_json(const ProtobufCMessageDescriptor *type,
                                   const struct message_source *source,
                                   ProtobufCMessage **ret_message, struct error *error)
{
    cleanup(buffer_done) struct buffer wire = BUFFER_INIT(2 * MESSAGE_BYTES); /* path and body */
    cleanup(json_deletep) cJSON *body = NULL;
    ProtobufCMessage *message = NULL;
    enum status_code code = STATUS_OK;
    struct error why = {0};

    if ((source->body_length || !source->is_optional) &&
        json_parse(source->body, source->body_length, JSON_LIMITS_HTTP, &body, &why) < 0)
        return REFUSE(error, "the body: %s", why.text);
    if (source->id)
        put_bytes(&wire, &type->fields[0], source->id, source->id_length);
    if (body)
        code = take_object(type, body, "", source->id ? type->fields[0].id : 0, &wire, error);
    if (code != STATUS_OK)
        return code;
    if (buffer_error(&wire) < 0 || proto_unpack(type, wire.data, wire.length, &message) < 0)
        return answer_refuse(error, ANSWER_OUT_OF_MEMORY, "out of memory");
    code = message_check(message, error);
    if (code == STATUS_OK)
        *ret_message = message;
    else
        (void)proto_free(message);
    return code;
}

/* ---- to JSON ---- */

static void append_value(struct buffer *json, const ProtobufCMessage *message,
                         const ProtobufCFieldDescriptor *field, const void *value)
{
    static const Crust__Drive__V1__RateLimiter no_limits = CRUST__DRIVE__V1__RATE_LIMITER__INIT;
    const int choice = field->type == PROTOBUF_C_TYPE_ENUM ? *(const int *)value : 0;
    const ProtobufCBinaryData *text = value;
    const ProtobufCMessage *inner;
    const char *word = field->type == PROTOBUF_C_TYPE_ENUM ? word_of(field, choice) : NULL;

    switch ((int)field->type) {
    case PROTOBUF_C_TYPE_BYTES: /* where a drive has no text, nothing is known, so that is null */
        (void)json_append_string(json, !text->len && message->descriptor ==
                                                         &crust__drive__v1__drive__descriptor
                                           ? NULL
                                           : message_text(text));
        break;
    case PROTOBUF_C_TYPE_BOOL:
        buffer_append_text(json, *(const protobuf_c_boolean *)value ? "true" : "false");
        break;
    case PROTOBUF_C_TYPE_ENUM:
        if (word)
            (void)json_append_string(json, word);
        else
            buffer_append_format(json, "%d", choice);
        break;
    case PROTOBUF_C_TYPE_INT32: /* a google.rpc.Code: the only such number in an answer */
        (void)json_append_string(
            json, *(const int32_t *)value ? status_name(*(const int32_t *)value) : NULL);
        break;
    case PROTOBUF_C_TYPE_MESSAGE: /* one that is absent is null; only limits are always an object */
        inner = *(const ProtobufCMessage *const *)value;
        if (!inner && field->descriptor == no_limits.base.descriptor)
            inner = &no_limits.base;
        if (inner)
            (void)message_append_json(json, inner);
        else
            buffer_append_text(json, "null");
        break;
    default: /* sizes, with or without a sign; none is negative */
        buffer_append_format(json, "%" PRIu64, *(const uint64_t *)value);
    }
}

int message_append_json(struct buffer *json, const ProtobufCMessage *message)
{
    buffer_append_text(json, "{");
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];

        json_append_name(json, field->name);
        if (field->label != PROTOBUF_C_LABEL_REPEATED) {
            append_value(json, message, field, place_of(message, field->offset));
            continue;
        }
        buffer_append_text(json, "[");
        for (size_t j = 0; j < count_of(message, field); j++) {
            buffer_append_text(json, j ? "," : "");
            append_value(json, message, field, element_of(message, field, j));
        }
        buffer_append_text(json, "]");
    }
    return buffer_append_text(json, "}");
}
