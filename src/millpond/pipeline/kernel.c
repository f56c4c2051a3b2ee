/* The inner loops of Spark's tasks: record batches to columns (decode.py), JSON to columns (values.py), and columns to
the records of a batch (encode.py).

Whatever looks odd to these functions they leave alone: they answer -1, or name the row, and the Python code that they
stand in for decides what it is. So they need to know only what is usual, and may never take what that code refuses.

Invariants: nothing is read outside [data, data + size) of a batch or a value, and every read is compared with that end
first. Nothing is written that the caller has no room for: bytes that are copied out of the input are at most as many as
it has, and kernel.py sets that much aside for each column. Nothing is kept from call to call, and nothing allocated.
C99, no library but memcpy and memcmp; loaded by ctypes (kernel.py), which lets go of Python's lock meanwhile. */

#include <stdint.h>
#include <string.h>

#define INTERFACE 3
int32_t millpond_interface(void) { return INTERFACE; }

static void set_bit(uint8_t *bits, int64_t place) { bits[place >> 3] |= (uint8_t)(1u << (place & 7)); }

/* Record batches */

#define TIMESTAMP_DISTANCE_MAX (((int64_t)1 << 62) - 1)
#define MILLIS_MAX (INT64_MAX / 1000)
#define OFFSET_MAX (INT64_MAX - ((int64_t)1 << 32))

typedef struct {
    const uint8_t *data; /* its records, inflated */
    int64_t size, count, base_offset, last_offset_delta, base_timestamp;
    int64_t append_time, has_append_time;
} Batch;

typedef struct {
    int32_t *bounds; /* NULL where the column is not asked for */
    uint8_t *bytes, *valid;
    int64_t used, nulls;
} Bytes;

typedef struct {
    int64_t *offsets, *micros;
    int32_t *kinds;
    int32_t *header_bounds; /* NULL where headers are not asked for */
    uint8_t *header_valid;
    int64_t header_count, header_nulls, headers_max;
    Bytes key, value, header_name, header_value;
} Columns;

static inline int read_raw(const uint8_t **place, const uint8_t *end, int bytes_max, uint64_t *raw) {
    const uint8_t *at = *place;
    uint64_t found = 0;
    for (int number = 0; number < bytes_max && at < end; number++) {
        uint8_t byte = *at++;
        if (number == 9 && byte > 1) return 0;
        found |= (uint64_t)(byte & 0x7F) << (7 * number);
        if (byte < 0x80) {
            *raw = found;
            *place = at;
            return 1;
        }
    }
    return 0;
}

static int64_t unzigzag(uint64_t raw) { return (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1); }

static inline __attribute__((always_inline)) int read_varint(const uint8_t **place, const uint8_t *end, int64_t *number) {
    uint64_t raw;
    if (*place < end && **place < 0x80)
        raw = *(*place)++;
    else if (!read_raw(place, end, 5, &raw) || raw >> 32)
        return 0;
    *number = unzigzag(raw);
    return 1;
}

/* A length, and so many bytes; `*from` is NULL for a null. */
static inline __attribute__((always_inline)) int read_bytes(const uint8_t **place, const uint8_t *end, const uint8_t **from, int64_t *size) {
    if (!read_varint(place, end, size) || *size < -1 || *size > end - *place) return 0;
    *from = NULL;
    if (*size < 0) {
        *size = 0;
        return 1;
    }
    *from = *place;
    *place += *size;
    return 1;
}

static inline __attribute__((always_inline)) void put_bytes(Bytes *column, int64_t row, const uint8_t *from, int64_t size) {
    if (column->bounds == NULL) return;
    if (from != NULL) {
        memcpy(column->bytes + column->used, from, (size_t)size);
        column->used += size;
        set_bit(column->valid, row);
    } else {
        column->nulls++;
    }
    column->bounds[row + 1] = (int32_t)column->used;
}

static int read_headers(const uint8_t *place, const uint8_t *end, int64_t count, Columns *columns, int is_wanted) {
    for (int64_t number = 0; number < count; number++) {
        const uint8_t *name, *value;
        int64_t name_size, value_size;
        if (!read_bytes(&place, end, &name, &name_size) || name == NULL) return 0;
        if (!read_bytes(&place, end, &value, &value_size)) return 0;
        if (!is_wanted) continue;
        if (columns->header_count == columns->headers_max) return 0;
        put_bytes(&columns->header_name, columns->header_count, name, name_size);
        put_bytes(&columns->header_value, columns->header_count, value, value_size);
        columns->header_count++;
    }
    return place == end;
}

/* The rows of one batch from offset `from` on and before `until`; the number of rows with them, or -1. */
static int64_t decode_batch(const Batch *batch, int64_t from, int64_t until, int64_t headers_max, Columns *columns,
                            int64_t row) {
    const uint8_t *place = batch->data, *batch_end = batch->data + batch->size;
    int64_t delta_before = -1;
    if (batch->base_offset < 0 || batch->base_offset > OFFSET_MAX) return -1;
    if (batch->base_timestamp > TIMESTAMP_DISTANCE_MAX || batch->base_timestamp < -TIMESTAMP_DISTANCE_MAX) return -1;
    for (int64_t number = 0; number < batch->count; number++) {
        const uint8_t *end, *key, *value;
        int64_t length, delta, key_size, value_size, header_count;
        uint64_t raw;
        if (!read_varint(&place, batch_end, &length) || length < 1 || length > batch_end - place) return -1;
        end = place + length;
        place++; /* attributes */
        if (place < end && *place < 0x80)
            raw = *place++;
        else if (!read_raw(&place, end, 10, &raw))
            return -1;
        int64_t time = unzigzag(raw);
        if (time > TIMESTAMP_DISTANCE_MAX || time < -TIMESTAMP_DISTANCE_MAX - 1) return -1;
        if (!read_varint(&place, end, &delta) || delta <= delta_before || delta > batch->last_offset_delta) return -1;
        delta_before = delta;
        if (!read_bytes(&place, end, &key, &key_size) || !read_bytes(&place, end, &value, &value_size)) return -1;
        if (!read_varint(&place, end, &header_count) || header_count < 0 || header_count > headers_max) return -1;
        int64_t offset = batch->base_offset + delta;
        int is_wanted = offset >= from && offset < until;
        if (header_count == 0 ? place != end
                              : !read_headers(place, end, header_count, columns, is_wanted && columns->header_bounds))
            return -1;
        place = end;
        if (!is_wanted) continue;
        time = batch->has_append_time ? batch->append_time : batch->base_timestamp + time;
        time = time > MILLIS_MAX ? MILLIS_MAX : time < -MILLIS_MAX ? -MILLIS_MAX : time;
        columns->offsets[row] = offset;
        columns->micros[row] = time * 1000;
        columns->kinds[row] = batch->has_append_time != 0;
        put_bytes(&columns->key, row, key, key_size);
        put_bytes(&columns->value, row, value, value_size);
        if (columns->header_bounds) {
            columns->header_bounds[row + 1] = (int32_t)columns->header_count;
            if (header_count)
                set_bit(columns->header_valid, row);
            else
                columns->header_nulls++;
        }
        row++;
    }
    return place == batch_end ? row : -1;
}

int64_t millpond_decode(const Batch *batches, int64_t batch_count, int64_t from, int64_t until, int64_t headers_max,
                        Columns *columns) {
    int64_t row = 0;
    for (int64_t number = 0; number < batch_count && row >= 0; number++)
        row = decode_batch(&batches[number], from, until, headers_max, columns, row);
    return row;
}

/* Record batches as they come from a log, back to back, none of them compressed: header.py has their layout. */

#define HEADER_BYTES 61
#define LENGTH_END 12
#define CRC_START 21
#define CODEC_BITS 7
#define APPEND_TIME_BIT 8
#define CONTROL_BIT 32
#define RECORD_BYTES_MIN 7
#define BATCH_BYTES_MAX ((int64_t)64 << 20) /* as limits.py has it, and the next one */
#define RECORDS_MAX 4000000

typedef struct {
    Batch batch;
    int64_t size; /* of the whole, header and all */
    uint32_t crc;
    int is_empty; /* nothing in it that anybody asks for */
} Found;

static int64_t big_endian(const uint8_t *at, int size) {
    uint64_t found = 0;
    for (int number = 0; number < size; number++) found = found << 8 | at[number];
    int spare = 64 - 8 * size;
    return (int64_t)(found << spare) >> spare;
}

/* The batch that begins here, of `left` bytes; 0 where it is compressed, cut short, or says what cannot be. */
static int find_batch(const uint8_t *at, int64_t left, Found *found) {
    if (left < HEADER_BYTES) return 0;
    int64_t size = big_endian(at + 8, 4) + LENGTH_END, attributes = big_endian(at + 21, 2);
    int64_t last_delta = big_endian(at + 23, 4), count = big_endian(at + 57, 4);
    if (size < HEADER_BYTES || size > BATCH_BYTES_MAX || size > left || at[16] != 2 || attributes & CODEC_BITS) return 0;
    if (last_delta < 0 || count < 0 || count > RECORDS_MAX || count > last_delta + 1) return 0;
    if (count * RECORD_BYTES_MIN > size - HEADER_BYTES) return 0;
    found->size = size;
    found->crc = (uint32_t)big_endian(at + 17, 4);
    found->is_empty = count == 0 || (attributes & CONTROL_BIT) != 0;
    found->batch = (Batch){at + HEADER_BYTES,         size - HEADER_BYTES,        count,
                           big_endian(at, 8),         last_delta,                 big_endian(at + 27, 8),
                           big_endian(at + 35, 8),    attributes & APPEND_TIME_BIT};
    return found->batch.base_offset >= 0 && found->batch.base_offset <= OFFSET_MAX;
}

static int is_wanted(const Found *found, int64_t from) {
    return !found->is_empty && found->batch.base_offset + found->batch.last_offset_delta >= from;
}

/* How many bytes of `data` hold batches before `until` that have at most `bytes_max` of content together, or are one;
what they have of it, and of rows, is added up. -1 where one of them is unusual. */
int64_t millpond_measure(const uint8_t *data, int64_t size, int64_t from, int64_t until, int64_t bytes_max,
                         int64_t *bytes, int64_t *rows) {
    int64_t place = 0;
    Found found;
    *bytes = *rows = 0;
    while (place < size) {
        if (!find_batch(data + place, size - place, &found)) return -1;
        if (found.batch.base_offset >= until) return place;
        if (is_wanted(&found, from)) {
            if (*bytes && *bytes + found.batch.size > bytes_max) return place;
            *bytes += found.batch.size;
            *rows += found.batch.count;
        }
        place += found.size;
    }
    return place;
}

#if defined(__x86_64__) && defined(__GNUC__)
int32_t millpond_has_crc(void) { return __builtin_cpu_supports("sse4.2") != 0; }

#define LANE_BYTES 2048
#define PAST_ONE_LANE 0x0d65762a /* x to the power of a lane's bits, and of two lanes', in CRC-32C's field */
#define PAST_TWO_LANES 0x35d73a62

/* The product of two polynomials there, the lowest power in the highest bit. */
static uint32_t product(uint32_t left, uint32_t right) {
    uint32_t found = 0;
    for (; left; left <<= 1) {
        found ^= right & (0u - (left >> 31));
        right = right >> 1 ^ (0x82F63B78u & (0u - (right & 1)));
    }
    return found;
}

static uint64_t word_at(const uint8_t *at) {
    uint64_t word;
    memcpy(&word, at, 8);
    return word;
}

/* The instruction takes three cycles, and may begin in each: three lanes at a time keep it busy. */
__attribute__((target("sse4.2"))) static uint32_t crc32c(const uint8_t *at, int64_t size) {
    uint64_t crc = 0xFFFFFFFF;
    for (; size >= 3 * LANE_BYTES; at += 3 * LANE_BYTES, size -= 3 * LANE_BYTES) {
        uint64_t second = 0, third = 0;
        for (int64_t place = 0; place < LANE_BYTES; place += 8) {
            crc = __builtin_ia32_crc32di(crc, word_at(at + place));
            second = __builtin_ia32_crc32di(second, word_at(at + LANE_BYTES + place));
            third = __builtin_ia32_crc32di(third, word_at(at + 2 * LANE_BYTES + place));
        }
        crc = product(PAST_TWO_LANES, (uint32_t)crc) ^ product(PAST_ONE_LANE, (uint32_t)second) ^ third;
    }
    for (; size >= 8; at += 8, size -= 8) crc = __builtin_ia32_crc32di(crc, word_at(at));
    for (; size > 0; at++, size--) crc = __builtin_ia32_crc32qi((uint32_t)crc, *at);
    return ~(uint32_t)crc;
}
#else
int32_t millpond_has_crc(void) { return 0; }

static uint32_t crc32c(const uint8_t *at, int64_t size) {
    (void)at;
    (void)size;
    return 0;
}
#endif

/* The rows of batches that were measured, each checked just before it is read, while it is near. -1 as above, or where
a checksum is wrong. */
int64_t millpond_decode_log(const uint8_t *data, int64_t size, int64_t from, int64_t until, int64_t headers_max,
                            Columns *columns) {
    int64_t row = 0;
    Found found;
    for (int64_t place = 0; place < size && row >= 0; place += found.size) {
        if (!find_batch(data + place, size - place, &found)) return -1;
        if (crc32c(data + place + CRC_START, found.size - CRC_START) != found.crc) return -1;
        if (is_wanted(&found, from)) row = decode_batch(&found.batch, from, until, headers_max, columns, row);
    }
    return row;
}

/* Columns to records: what encode_batch writes of rows whose time is the batch's. */

typedef struct {
    const int32_t *bounds;
    const uint8_t *bytes, *valid; /* a bit each, from `first` on; NULL where none is null */
    int64_t first;
} Cells;

static uint8_t *put_varint(uint8_t *at, int64_t number) {
    uint64_t raw = ((uint64_t)number << 1) ^ (uint64_t)(number >> 63);
    for (; raw >= 0x80; raw >>= 7) *at++ = (uint8_t)(raw | 0x80);
    *at++ = (uint8_t)raw;
    return at;
}

static int64_t varint_size(int64_t number) {
    uint64_t raw = ((uint64_t)number << 1) ^ (uint64_t)(number >> 63);
    int64_t size = 1;
    for (; raw >= 0x80; raw >>= 7) size++;
    return size;
}

/* How long a cell is; -1 where it is null. */
static int64_t cell_size(const Cells *cells, int64_t row) {
    int64_t bit = cells->first + row;
    if (cells->valid && !(cells->valid[bit >> 3] >> (bit & 7) & 1)) return -1;
    return cells->bounds[row + 1] - cells->bounds[row];
}

static uint8_t *put_cell(uint8_t *at, const Cells *cells, int64_t row, int64_t size) {
    at = put_varint(at, size);
    if (size <= 0) return at;
    memcpy(at, cells->bytes + cells->bounds[row], (size_t)size);
    return at + size;
}

/* The records of `rows` rows into `out`, which has room for their bytes and 24 more for each; how many were written.
`tails` are header counts and headers, laid out already; NULL where nobody has any. */
int64_t millpond_encode(const Cells *keys, const Cells *values, const Cells *tails, int64_t rows, uint8_t *out) {
    uint8_t *at = out;
    for (int64_t row = 0; row < rows; row++) {
        int64_t key = cell_size(keys, row), value = cell_size(values, row);
        int64_t tail = tails ? cell_size(tails, row) : 1;
        /* Attributes and timestamp delta are a zero byte each. */
        int64_t size = 2 + varint_size(row) + varint_size(key) + varint_size(value) + tail;
        at = put_varint(at, size + (key > 0 ? key : 0) + (value > 0 ? value : 0));
        *at++ = 0;
        *at++ = 0;
        at = put_varint(at, row);
        at = put_cell(at, keys, row, key);
        at = put_cell(at, values, row, value);
        if (tails) {
            memcpy(at, tails->bytes + tails->bounds[row], (size_t)tail);
            at += tail;
        } else {
            *at++ = 0;
        }
    }
    return at - out;
}

/* JSON: values that are objects with plain strings, numbers of few digits, and no field twice. The rest is named. */

enum { STRING, FLOAT, WHOLE, BOOLEAN, MOMENT, MAP };

#define DEPTH_MAX 16
#define DIGITS_MAX 18
#define ENTRIES_MAX 24
#define EXACT_MAX ((uint64_t)1 << 53)

typedef struct {
    const uint8_t *name;
    int64_t name_size, kind, least, most;
    void *numbers; /* of FLOAT, WHOLE and MOMENT; bits of BOOLEAN */
    Bytes text;    /* of STRING; of MAP the bounds and validity of its rows */
    Bytes entry_key, entry_value;
    int64_t entries;
} Field;

typedef struct {
    int64_t used, entries, key_used, value_used;
} Mark;

typedef struct {
    uint64_t digits;
    int64_t exponent;
    int is_negative, is_whole;
} Number;

static const uint8_t *skip_space(const uint8_t *at, const uint8_t *end) {
    while (at < end && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t')) at++;
    return at;
}

/* Bytes of the character at `at`, which is not ASCII; 0 where it is none. */
static int character_size(const uint8_t *at, const uint8_t *end) {
    uint8_t first = at[0];
    int size = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
    if (size == 0 || end - at < size) return 0;
    for (int number = 1; number < size; number++)
        if ((at[number] & 0xC0) != 0x80) return 0;
    if ((first == 0xE0 && at[1] < 0xA0) || (first == 0xED && at[1] > 0x9F)) return 0;
    if ((first == 0xF0 && at[1] < 0x90) || (first == 0xF4 && at[1] > 0x8F)) return 0;
    return size;
}

/* From an opening quote to behind the closing one; NULL for a string that has an escape, or is none. */
static const uint8_t *scan_string(const uint8_t *at, const uint8_t *end, const uint8_t **from, int64_t *size) {
    if (at >= end || *at != '"') return NULL;
    *from = ++at;
    while (at < end) {
        uint8_t byte = *at;
        if (byte == '"') {
            *size = at - *from;
            return at + 1;
        }
        if (byte < 0x20 || byte == '\\') return NULL;
        int step = byte < 0x80 ? 1 : character_size(at, end);
        if (step == 0) return NULL;
        at += step;
    }
    return NULL;
}

static const uint8_t *scan_number(const uint8_t *at, const uint8_t *end, Number *number) {
    int digits = 0;
    *number = (Number){0, 0, 0, 1};
    if (at < end && *at == '-') {
        number->is_negative = 1;
        at++;
    }
    const uint8_t *first = at;
    for (; at < end && *at >= '0' && *at <= '9'; at++, digits++) {
        if (digits == DIGITS_MAX) return NULL;
        number->digits = number->digits * 10 + (*at - '0');
    }
    if (at == first || (*first == '0' && at - first > 1)) return NULL;
    if (at < end && *at == '.') {
        number->is_whole = 0;
        first = ++at;
        for (; at < end && *at >= '0' && *at <= '9'; at++, digits++, number->exponent--) {
            if (digits == DIGITS_MAX) return NULL;
            number->digits = number->digits * 10 + (*at - '0');
        }
        if (at == first) return NULL;
    }
    if (at < end && (*at == 'e' || *at == 'E')) return NULL;
    if (number->is_negative && number->digits == 0) return NULL;
    return at;
}

static const uint8_t *scan_word(const uint8_t *at, const uint8_t *end, const char *word, int64_t size) {
    return end - at >= size && memcmp(at, word, (size_t)size) == 0 ? at + size : NULL;
}

/* What no field wants: behind it, where it is as JSON has to be. */
static const uint8_t *skip_value(const uint8_t *at, const uint8_t *end, int depth) {
    const uint8_t *from;
    int64_t size;
    Number number;
    if (at >= end || depth == DEPTH_MAX) return NULL;
    switch (*at) {
    case '"': return scan_string(at, end, &from, &size);
    case 't': return scan_word(at, end, "true", 4);
    case 'f': return scan_word(at, end, "false", 5);
    case 'n': return scan_word(at, end, "null", 4);
    case '{':
    case '[': break;
    default: return scan_number(at, end, &number);
    }
    uint8_t closing = *at == '{' ? '}' : ']';
    at = skip_space(at + 1, end);
    if (at < end && *at == closing) return at + 1;
    for (;;) {
        if (closing == '}') {
            if ((at = scan_string(at, end, &from, &size)) == NULL) return NULL;
            at = skip_space(at, end);
            if (at >= end || *at != ':') return NULL;
            at = skip_space(at + 1, end);
        }
        if ((at = skip_value(at, end, depth + 1)) == NULL) return NULL;
        at = skip_space(at, end);
        if (at >= end) return NULL;
        if (*at == closing) return at + 1;
        if (*at != ',') return NULL;
        at = skip_space(at + 1, end);
    }
}

static int has_key(const Field *field, int64_t first, const uint8_t *from, int64_t size) {
    for (int64_t entry = first; entry < field->entries; entry++) {
        int64_t start = field->entry_key.bounds[entry];
        if (field->entry_key.bounds[entry + 1] - start == size &&
            memcmp(field->entry_key.bytes + start, from, (size_t)size) == 0)
            return 1;
    }
    return 0;
}

static const uint8_t *read_map(const uint8_t *at, const uint8_t *end, Field *field) {
    int64_t first = field->entries;
    if (at >= end || *at != '{') return NULL;
    at = skip_space(at + 1, end);
    if (at < end && *at == '}') return at + 1;
    for (;;) {
        const uint8_t *key, *value;
        int64_t key_size, value_size;
        if ((at = scan_string(at, end, &key, &key_size)) == NULL) return NULL;
        at = skip_space(at, end);
        if (at >= end || *at != ':') return NULL;
        at = skip_space(at + 1, end);
        if ((at = scan_string(at, end, &value, &value_size)) == NULL) return NULL;
        if (field->entries - first == ENTRIES_MAX || has_key(field, first, key, key_size)) return NULL;
        memcpy(field->entry_key.bytes + field->entry_key.used, key, (size_t)key_size);
        memcpy(field->entry_value.bytes + field->entry_value.used, value, (size_t)value_size);
        field->entry_key.used += key_size;
        field->entry_value.used += value_size;
        field->entries++;
        field->entry_key.bounds[field->entries] = (int32_t)field->entry_key.used;
        field->entry_value.bounds[field->entries] = (int32_t)field->entry_value.used;
        at = skip_space(at, end);
        if (at >= end) return NULL;
        if (*at == '}') return at + 1;
        if (*at != ',') return NULL;
        at = skip_space(at + 1, end);
    }
}

static const uint8_t *read_number(const uint8_t *at, const uint8_t *end, Field *field, int64_t row) {
    static const double tens[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14,
                                  1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    Number number;
    if ((at = scan_number(at, end, &number)) == NULL) return NULL;
    if (field->kind == FLOAT) {
        /* Both are exact as doubles, so the quotient is the one that is nearest. */
        if (number.digits > EXACT_MAX) return NULL;
        double found = (double)number.digits / tens[-number.exponent];
        ((double *)field->numbers)[row] = number.is_negative ? -found : found;
        return at;
    }
    int64_t found = number.is_negative ? -(int64_t)number.digits : (int64_t)number.digits;
    if (!number.is_whole || found < field->least || found > field->most) return NULL;
    ((int64_t *)field->numbers)[row] = field->kind == MOMENT ? found * 1000 : found;
    return at;
}

/* Into `row` of the field, where it is what the field expects. */
static const uint8_t *read_value(const uint8_t *at, const uint8_t *end, Field *field, int64_t row) {
    const uint8_t *from, *after;
    int64_t size;
    if (at < end && *at == 'n') return scan_word(at, end, "null", 4);
    switch (field->kind) {
    case STRING:
        if ((at = scan_string(at, end, &from, &size)) == NULL) return NULL;
        memcpy(field->text.bytes + field->text.used, from, (size_t)size);
        field->text.used += size;
        break;
    case MAP: at = read_map(at, end, field); break;
    case BOOLEAN:
        if ((after = scan_word(at, end, "true", 4)) != NULL) set_bit(field->numbers, row);
        at = after != NULL ? after : scan_word(at, end, "false", 5);
        break;
    default: at = read_number(at, end, field, row);
    }
    if (at != NULL) set_bit(field->text.valid, row);
    return at;
}

/* Its number, or `count`; most objects have their fields in the order of the schema. */
static int64_t find_field(const Field *fields, int64_t count, int64_t likely, const uint8_t *name, int64_t size) {
    for (int64_t tried = 0; tried < count; tried++) {
        int64_t place = likely + tried < count ? likely + tried : likely + tried - count;
        if (fields[place].name_size == size && memcmp(fields[place].name, name, (size_t)size) == 0) return place;
    }
    return count;
}

static int read_object(const uint8_t *at, const uint8_t *end, Field *fields, int64_t count, int64_t row) {
    uint64_t seen = 0;
    int64_t likely = 0;
    at = skip_space(at, end);
    if (at >= end || *at != '{') return 0;
    at = skip_space(at + 1, end);
    if (at < end && *at == '}') return skip_space(at + 1, end) == end;
    for (;;) {
        const uint8_t *name;
        int64_t size;
        if ((at = scan_string(at, end, &name, &size)) == NULL) return 0;
        at = skip_space(at, end);
        if (at >= end || *at != ':') return 0;
        at = skip_space(at + 1, end);
        int64_t place = find_field(fields, count, likely, name, size);
        if (place == count) {
            at = skip_value(at, end, 0);
        } else {
            if (seen >> place & 1) return 0;
            seen |= (uint64_t)1 << place;
            likely = place + 1 == count ? 0 : place + 1;
            at = read_value(at, end, &fields[place], row);
        }
        if (at == NULL) return 0;
        at = skip_space(at, end);
        if (at >= end) return 0;
        if (*at == '}') return skip_space(at + 1, end) == end;
        if (*at != ',') return 0;
        at = skip_space(at + 1, end);
    }
}

static void clear_bit(uint8_t *bits, int64_t place) { bits[place >> 3] &= (uint8_t) ~(1u << (place & 7)); }

/* Values that lie between `bounds`, `valid` or not; rows that are left to others go into `left`, as many as returned.
A field has a bit set in its `text.valid` where it has something; `marks` is room to remember where a row began. */
int64_t millpond_json(const uint8_t *bytes, const int32_t *bounds, const uint8_t *valid, int64_t rows, Field *fields,
                      int64_t count, Mark *marks, int64_t *left) {
    int64_t left_count = 0;
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t number = 0; number < count; number++) {
            Field *field = &fields[number];
            marks[number] = (Mark){field->text.used, field->entries, field->entry_key.used, field->entry_value.used};
        }
        int is_read = !valid[row] || read_object(bytes + bounds[row], bytes + bounds[row + 1], fields, count, row);
        if (!is_read) left[left_count++] = row;
        for (int64_t number = 0; number < count; number++) {
            Field *field = &fields[number];
            if (!is_read) {
                field->text.used = marks[number].used;
                field->entries = marks[number].entries;
                field->entry_key.used = marks[number].key_used;
                field->entry_value.used = marks[number].value_used;
                clear_bit(field->text.valid, row);
            }
            if (field->kind == STRING) field->text.bounds[row + 1] = (int32_t)field->text.used;
            if (field->kind == MAP) field->text.bounds[row + 1] = (int32_t)field->entries;
        }
    }
    return left_count;
}
