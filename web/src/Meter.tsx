/** How many seats of a limit are taken, as a small bar. */
export function Meter({ occupancy, max, label }: { readonly occupancy: number; readonly max: number; readonly label: string }) {
  return (
    <span className="gl-meter" role="meter" aria-label={label} aria-valuemin={0} aria-valuemax={Math.max(max, occupancy)} aria-valuenow={occupancy} data-full={occupancy >= max || undefined}>
      <span style={{ width: `${Math.min(1, occupancy / max) * 100}%` }} />
    </span>
  );
}
