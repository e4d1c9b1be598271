"""The portable path: what code may rely on where nothing is known of the machine.

STAX_PORTABLE=1 forces it, so that tests can take it anywhere: the baseline of the architecture
instead of the features of this CPU, parallel loops on their caller instead of a pool that needs
futexes, and calls from Python by ctypes instead of native ones that know how its objects are laid
out.  Half precision is here too: CPUs without instructions for it call two functions, which are
part of some C compilers' libraries and not of every process.

Results have the bits of those of the other path but for the NaNs: which one of two NaNs a product
or a sum gives, and with which sign, depends on the instructions (IEEE 754 leaves it open), so
`signbit` of a NaN that was computed is nothing to rely on.
"""

from __future__ import annotations

from stax.config import flag

# Rounds to nearest, ties to even; below the smallest normal number the addition of 0.5, whose last
# bit is that of the subnormal ones, does it.
_HALVES = """
define linkonce_odr hidden half @__truncsfhf2(float %x) nounwind {
  %bits = bitcast float %x to i32
  %high = lshr i32 %bits, 16
  %sign = and i32 %high, 32768
  %size = and i32 %bits, 2147483647
  %last.at = lshr i32 %size, 13
  %last = and i32 %last.at, 1
  %up = add i32 %size, 4095
  %even = add i32 %up, %last
  %moved = sub i32 %even, 939524096
  %normal = lshr i32 %moved, 13
  %positive = bitcast i32 %size to float
  %sum = fadd float %positive, 0.5
  %sum.bits = bitcast float %sum to i32
  %subnormal = sub i32 %sum.bits, 1056964608
  %is.small = icmp ult i32 %size, 947912704
  %finite = select i1 %is.small, i32 %subnormal, i32 %normal
  %is.large = icmp uge i32 %size, 1199566848
  %number = select i1 %is.large, i32 31744, i32 %finite
  %payload.at = lshr i32 %size, 13
  %payload = and i32 %payload.at, 1023
  %nan = or i32 %payload, 32256
  %is.nan = icmp ugt i32 %size, 2139095040
  %known = select i1 %is.nan, i32 %nan, i32 %number
  %result = or i32 %known, %sign
  %short = trunc i32 %result to i16
  %half = bitcast i16 %short to half
  ret half %half
}
define linkonce_odr hidden float @__extendhfsf2(half %x) nounwind {
  %short = bitcast half %x to i16
  %bits = zext i16 %short to i32
  %sign.at = and i32 %bits, 32768
  %sign = shl i32 %sign.at, 16
  %size = and i32 %bits, 32767
  %wide = shl i32 %size, 13
  %normal = add i32 %wide, 939524096
  %whole = uitofp i32 %size to float
  %small = fmul float %whole, 0x3E70000000000000
  %subnormal = bitcast float %small to i32
  %is.small = icmp ult i32 %size, 1024
  %finite = select i1 %is.small, i32 %subnormal, i32 %normal
  %infinite = or i32 %wide, 2139095040
  %is.infinite = icmp uge i32 %size, 31744
  %number = select i1 %is.infinite, i32 %infinite, i32 %finite
  %quiet = or i32 %number, 4194304
  %is.nan = icmp ugt i32 %size, 31744
  %known = select i1 %is.nan, i32 %quiet, i32 %number
  %result = or i32 %known, %sign
  %float = bitcast i32 %result to float
  ret float %float
}
"""


def is_portable() -> bool:
    """Say whether STAX_PORTABLE asks for the portable path."""
    return flag("STAX_PORTABLE")


def with_halves(text: str) -> str:
    """Add what a module of LLVM text calls to convert half precision, if it does."""
    return text + _HALVES if "half" in text else text
