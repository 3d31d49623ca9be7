/** How many seats are taken, as a small bar. */
export function Meter({ occupancy, max, label }: { readonly occupancy: number; readonly max: number; readonly label: string }) {
  const part = max <= 0 ? (occupancy > 0 ? 1 : 0) : Math.min(1, occupancy / max);
  return (
    <span className="gl-meter" role="meter" aria-label={label} aria-valuemin={0} aria-valuemax={Math.max(max, occupancy, 1)} aria-valuenow={occupancy} data-full={(max >= 0 && occupancy >= max) || undefined}>
      <span style={{ width: `${part * 100}%` }} />
    </span>
  );
}
