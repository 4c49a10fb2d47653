"""The checksum of chunks, and of messages of baidu_std."""

# CRC32C (Castagnoli), reflected, by a table: Python's zlib has another polynomial.
TABLE = []
for index in range(256):
    crc = index
    for _ in range(8):
        crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    TABLE.append(crc)


def crc32c(data, crc=0):
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF
